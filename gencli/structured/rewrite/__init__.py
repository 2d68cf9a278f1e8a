"""Rewriting: equivalent schemas in keywords that a back end enforces."""
