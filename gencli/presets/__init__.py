"""Presets: YAML files with values of a run, checked key by key, that build on each other."""
