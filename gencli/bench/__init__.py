"""Measurements of `gencli bench`. Each figure is a ratio, or is printed beside its reference."""
