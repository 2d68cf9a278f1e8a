"""YAML presets: search, reading, checks, stacking and writing."""
