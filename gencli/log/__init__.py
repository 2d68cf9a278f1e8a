"""The log of runs: what is kept of each, and the database that keeps it."""
