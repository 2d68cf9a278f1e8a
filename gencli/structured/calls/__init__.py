"""Tool calls and structural tags: grammars around JSON, in the format that a model uses."""
