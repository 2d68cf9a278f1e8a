"""Where a request stands in its grammar: forced tokens, completions, narrowed masks."""
