"""From the table of options to typer commands, their help, and the prompts that arguments name."""
