"""gencli: generate text with a local language model through a visible chain of logits processors."""

__all__ = ["__version__"]

__version__ = "0.1.0"
