"""The state of a request in its grammar: forced tokens, completions, narrowed masks."""
