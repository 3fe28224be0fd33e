"""The GPT: its layers, attention with and without a cache, and generation."""
