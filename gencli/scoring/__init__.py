"""Scores of texts under a model: conventions, totals, and what is scored."""
