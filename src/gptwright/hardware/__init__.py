"""What devices can do: the table, detection, measured peaks, and a model of how fast they train."""
