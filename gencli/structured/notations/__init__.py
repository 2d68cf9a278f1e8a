"""Regular expressions, grammars and choices: read, checked and written for the back ends."""
