"""Tool calls and structural tags: grammars around JSON, in the model's own format."""
