"""Regular expressions, grammars and lists of texts: read, checked, written for a back end."""
