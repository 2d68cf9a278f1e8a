"""Data types of generation: requests, events and steps. Other rooms import it; it imports none."""
