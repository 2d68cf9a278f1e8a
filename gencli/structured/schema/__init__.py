"""Schemas: where they come from, what is refused of them, and the check of a finished document."""
