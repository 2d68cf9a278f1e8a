"""Regular expressions: one tree, a reader for each dialect, one printer, operations on trees."""
