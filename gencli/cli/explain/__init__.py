"""Records of tokens as text for a terminal."""
