"""Grammars: what a text has to look like, and the back ends that turn that into masks over tokens."""
