"""Regular expressions: one tree, a reader for each dialect, one printer, and operations on trees."""
