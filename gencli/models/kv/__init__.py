"""KV caches: how lanes are laid out in memory, and attention over them."""
