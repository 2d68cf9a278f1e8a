"""Grammar back ends, and shared code: bit masks, mask filling, byte vocabularies."""
