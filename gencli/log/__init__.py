"""The log of runs: entries and their database."""
