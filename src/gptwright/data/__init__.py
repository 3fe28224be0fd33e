"""From text to batches: corpora, tokenizers, preparing, token datasets and sampling.

A corpus (`sources`) is read by `prepare`, which writes a folder of raw token ids and a manifest;
`dataset` opens such a folder, or one of nanoGPT's, and `sampling` draws batches from it. Nothing here
needs torch, and nothing read from disk is ever executed or unpickled.
"""
