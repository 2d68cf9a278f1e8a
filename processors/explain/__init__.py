"""Explanations of a chain: effect of each stage on a row of logits, deciding stages, runner-up."""
