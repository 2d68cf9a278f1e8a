"""Grammar back ends, and what they share: bit masks, filling, byte vocabularies."""
