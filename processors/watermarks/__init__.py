"""What watermarks compute from their keys, for stages and detectors."""
