"""Watermarks in texts: the files of their keys, and the detectors."""
