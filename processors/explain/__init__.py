"""Explanations of a chain: the effect of each stage on a row of logits, deciding stages, runner-up."""
