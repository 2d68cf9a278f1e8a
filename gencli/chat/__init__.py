"""A conversation and the commands on it, without a terminal."""
