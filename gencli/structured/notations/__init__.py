"""Regular expressions, grammars and choices: reading, checking and writing for the back ends."""
