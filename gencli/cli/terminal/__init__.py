"""All writing to stdout and stderr: escaped text, bars, live views, tables."""
