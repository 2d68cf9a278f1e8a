"""Helpers of more than one room of tests; a helper of one room lies in that room."""
