"""Settings of other systems as presets: their command lines, preset files and request bodies."""
