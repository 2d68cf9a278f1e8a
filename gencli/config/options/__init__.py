"""The tables of options: names, help, bounds and defaults."""
