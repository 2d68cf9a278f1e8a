"""Matrix products with fixed weights: the kernels, and the choice among them."""
