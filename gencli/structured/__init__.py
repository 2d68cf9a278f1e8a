"""Structured output: from a schema or grammar to masks, and from a text to a validated value."""
