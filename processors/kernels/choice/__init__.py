"""Scaling, truncation and sampling on a GPU in a few kernels, which `Chooser` launches in place of stages."""
