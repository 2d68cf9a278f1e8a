"""Tool calls and structural tags: grammars around JSON, in the format a model uses."""
