"""Speculative decoding: drafters, what drafts cost, and how many of them pay."""
