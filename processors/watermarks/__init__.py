"""Keyed functions of the watermarks (KGW, SynthID, Philox numbers), for stages and detectors."""
