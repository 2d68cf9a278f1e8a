"""Contrastive search: the candidates of each step run in parallel, and the best one is continued."""
