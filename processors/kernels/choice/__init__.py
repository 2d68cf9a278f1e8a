"""Scale, truncate and draw on a GPU in a few kernels: what `Chooser` runs there in place of stages."""
