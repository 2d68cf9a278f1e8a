"""Rewriting: equal schemas in keywords that a back end enforces."""
