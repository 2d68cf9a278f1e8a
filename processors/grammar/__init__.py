"""Grammars: constraints on the format of a text, and back ends that turn them into token masks."""
