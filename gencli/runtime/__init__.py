"""What a run is wired of: models, drafters, contrast models, grammars and the engine on them."""
