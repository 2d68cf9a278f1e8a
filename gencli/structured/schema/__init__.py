"""JSON Schema: drafts, keywords, references, JSON pointers, formats."""
