"""Validation of finished texts."""
