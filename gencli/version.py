"""The version of gencli, which the package, its records and its requests to the hub name."""

__version__ = "0.1.0"
