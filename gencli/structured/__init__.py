"""Structured output: from a schema or grammar to masks, and from the text to a checked document."""
