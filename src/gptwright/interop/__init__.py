"""Other people's checkpoints and formats, read and written without running foreign code."""
