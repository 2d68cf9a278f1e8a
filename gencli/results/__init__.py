"""Output of a run: results, candidates, draft statistics, progress of prompts."""
