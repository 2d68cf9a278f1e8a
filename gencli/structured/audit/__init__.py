"""Audit: which keywords of a schema the mask of a back end enforces."""
