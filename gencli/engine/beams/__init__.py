"""Beam search, and the best of several samples."""
