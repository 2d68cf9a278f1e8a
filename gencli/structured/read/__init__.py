"""Readers of schemas: files, JSON texts, the concise form, Python models."""
