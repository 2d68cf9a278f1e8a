"""Models of the Hugging Face hub: names, the cache on this machine, and how they get there."""
