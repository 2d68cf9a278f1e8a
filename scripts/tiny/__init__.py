"""The made-up text that the bundled `tiny` models are trained on."""
