"""Engines that run the rows of a batch: this process, or workers of Ray."""
