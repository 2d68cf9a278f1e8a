"""Data types of generation: requests, events and steps. Imports no other package of gencli."""
