"""Faults of a schema, found before a model is loaded."""
