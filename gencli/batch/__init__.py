"""Batches: rows of prompts from files, a journal of finished rows, and results in several formats."""
