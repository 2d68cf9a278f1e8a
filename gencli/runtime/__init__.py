"""Construction of a run: models, drafters, contrast models, grammars, and the engine on them."""
