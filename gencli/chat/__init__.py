"""A conversation and what can be done to it, without a terminal."""
