"""Compiling grammars within limits of time, memory and size, beside other work."""
