"""processors: logits processing as data. Slots stay, rows pass, apply is read-only."""
