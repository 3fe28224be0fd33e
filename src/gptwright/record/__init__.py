"""A run's record, ours or another trainer's: folder, metrics, logs, and the evidence read from them."""
