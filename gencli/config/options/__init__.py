"""The tables of options, side by side: names, help, bounds and defaults."""
