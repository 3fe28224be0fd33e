"""What this device is and can do: detection and measured peaks."""
