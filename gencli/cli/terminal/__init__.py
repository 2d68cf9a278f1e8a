"""Writing to stdout and stderr: escaped text, progress bars, live views, tables."""
