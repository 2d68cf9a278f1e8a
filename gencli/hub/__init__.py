"""Models of the Hugging Face hub: their names, the local cache, and downloads."""
