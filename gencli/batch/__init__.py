"""Batches: prompts from files, a journal in which nothing is lost, results in the form that is asked for."""
