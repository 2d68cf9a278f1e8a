"""Typer commands and their help, built from the option tables, and the prompts of a run."""
