"""Conditions of stages: where in an output a stage acts."""
