"""Background compilation of grammars within limits of time, memory and size."""
