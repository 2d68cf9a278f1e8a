"""Contrastive search: the candidates of each step run side by side, and the best one goes on."""
