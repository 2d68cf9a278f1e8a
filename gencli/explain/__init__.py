"""Explanations of tokens: their records as JSON, and records as text."""
