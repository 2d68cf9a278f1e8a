"""Model folders: locate, read, check and identify them before weights are loaded."""
