"""KV caches: the memory layout of KV lanes, and attention over them."""
