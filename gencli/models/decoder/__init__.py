"""One decoder for the common families of language models, described by values, in PyTorch alone."""
