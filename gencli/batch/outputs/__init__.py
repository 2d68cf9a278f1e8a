"""How results are written: one writer for each format. Nothing has its final name before it is complete."""
