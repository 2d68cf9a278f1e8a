"""From flags, environment, presets and model files to the settings and the job of a run."""
