"""DoLa takes from the log-probabilities of the last layer those of an early one of the same forward pass."""

import torch

from gencli.engine.layer_contrast import candidates
from processors.reference.guidance import contrast_layers
from tests.engine.harness import generate
from tests.engine.test_layer_contrast import LOW, asked, model, runner, spec

PROMPTS = ("Hello", "the cat sat on the mat", "a")


@torch.inference_mode()
def by_hand(model, one):
    """Greedy ids from the states of transformers, a whole pass for each token."""
    found, layers = [], candidates(one.dola.layers, spec(6))
    for _ in range(12):
        out = model(torch.tensor([[*one.prompt_ids, *found]]), output_hidden_states=True)
        early = [model.lm_head(out.hidden_states[layer][0, -1]).tolist() for layer in layers]
        scores = contrast_layers(out.logits[0, -1].tolist(), early, one.dola.cutoff)
        scores[257] = -torch.inf
        found.append(max(range(258), key=scores.__getitem__))
    return bytes(token for token in found if token < 256).decode(errors="replace")


def check(model, runner, dola):
    asks = [asked(text, dola, draw="greedy") for text in PROMPTS]
    found = {key: end.text for (key, _), end in generate(asks, runner=runner).items()}
    assert found == {one.id: by_hand(model, one) for one in asks}, dola


def test_the_text_is_that_of_the_formula_on_the_states_of_transformers(model, runner):
    check(model, runner, LOW)
