"""Guidance: companion lanes beside those of guided requests, and the options that ask for them."""
