"""What a person asked for: the schema of settings, presets, and safe readers of config files."""
