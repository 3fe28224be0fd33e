"""A run's record: its folder, its metrics, and the log that people read."""
