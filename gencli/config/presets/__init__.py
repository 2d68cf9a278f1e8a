"""YAML presets: found, read, checked, stacked and written."""
