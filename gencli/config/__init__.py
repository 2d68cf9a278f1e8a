"""Settings and jobs of runs, from flags, environment, presets and model files."""
