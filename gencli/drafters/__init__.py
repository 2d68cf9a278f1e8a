"""The old place of gencli.speculative, kept for one release for the imports of plug-ins."""
