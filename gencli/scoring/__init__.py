"""Scores of texts under a model: items, conventions, totals."""
