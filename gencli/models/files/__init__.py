"""Model folders: found, read, checked and identified, before weights are loaded."""
