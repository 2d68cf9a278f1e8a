"""The nouns of generation: requests, events and steps. Imports nothing of gencli but what stands below."""
