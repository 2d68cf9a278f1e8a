"""Writers of results: one for each format. An output gets its final name when it is complete."""
