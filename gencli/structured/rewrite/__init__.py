"""Equal schemas that a back end gets right, where it gets the one that was written wrong."""
