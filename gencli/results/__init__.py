"""What a run has produced: results, candidates, reports of drafts, progress of prompts."""
