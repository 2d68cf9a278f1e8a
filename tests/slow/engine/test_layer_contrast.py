"""DoLa takes from the log-probabilities of the last layer those of an early one of the same forward pass."""

from dataclasses import replace

import torch

from gencli.core.request import Drafting, Guidance, LayerContrast
from gencli.engine.guidance import candidates
from processors.draw_twins import contrast_layers
from tests.engine.harness import Scripted, generate
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


def test_others_beside_it_change_nothing_and_it_changes_nothing_of_theirs(runner):
    requests = [
        asked("Hello"),
        asked("Hello", LayerContrast((4,)), key="four", prompt_logprobs=1),
        asked("a", None, logprobs=1),
        replace(asked("Hello", None, key="guided"), guidance=Guidance(2.0)),
        asked("the cat", key="many", n=2),
    ]
    alone = {key: end for one in requests for key, end in generate([one], runner=runner).items()}
    together = generate(requests, runner=runner)
    assert {key: end.text for key, end in together.items()} == {key: end.text for key, end in alone.items()}
    assert len({end.text for end in alone.values()}) == len(alone)


def test_drafts_change_nothing(runner):
    for count in (1, 3, 8):
        one = asked("the cat sat")
        plain = generate([one], runner=runner)[one.id, 0]
        drafter = Scripted({one.prompt_ids: tuple(plain.text.encode(errors="replace"))}, most=count)
        drafted = replace(one, drafting=Drafting(tokens=count))
        assert generate([drafted], runner=runner, drafter=drafter)[one.id, 0].text == plain.text, count
