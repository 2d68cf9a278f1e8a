"""Beam search gives the sequences and scores of transformers, where the two agree by definition.

Entry by entry in docs/contributing/evidence.md: our bound is that of early_stopping="never", our `early_stopping` that of
true. A stage works on logits here and on logprobs there, which is one and the same for a model whose
logits are logprobs.
"""

from itertools import cycle

import pytest
import torch

from gencli.core.events import Finish, Token
from gencli.core.request import Beams, Limits, Request
from gencli.engine.best_of import rounded
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.models.tiny_models import VOCAB, build

ENDS = (3, 17, 31, 44, 58, 72, 90, 111)  # so many that random models end their texts


NUM_PROMPTS, NEW = 50, 14


class Ids(ByteTokenizer):
    """Ids that are letters below 120; the model says which of them end a text."""

    eos_ids = ()
    vocab_size = VOCAB


def model_of(kind, *, ends=ENDS, normalised=False):
    """A random model; `normalised` makes its logits logprobs."""
    model = build(kind)
    model.generation_config.eos_token_id = list(ends)
    model.generation_config.pad_token_id = 0
    if normalised:
        model.lm_head.register_forward_hook(lambda head, given, logits: logits.log_softmax(-1))
    return model


def cases(early=(True, False), penalties=(0.6, 1.0, 2.0)):
    """Prompts of 1 to 12 tokens, each with one of the settings."""
    draw = torch.Generator().manual_seed(5)
    settings = cycle((w, p, e) for e in early for p in penalties for w in (2, 3, 5))
    for _ in range(NUM_PROMPTS):
        size = int(torch.randint(1, 13, (), generator=draw))
        prompt = torch.randint(VOCAB, (size,), generator=draw).tolist()
        yield tuple(prompt), Beams(*next(settings))


def theirs(model, prompt, beams, *, bound="never", **options):
    """Every beam of generate(), the best first: tokens and score."""
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        num_beams=beams.width,
        num_return_sequences=beams.width,
        length_penalty=beams.length_penalty,
        early_stopping=True if beams.early_stopping else bound,
        max_new_tokens=NEW,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return [
        (until_end(ids[len(prompt) :].tolist()), score.item())
        for ids, score in zip(found.sequences, found.sequences_scores, strict=True)
    ]


def until_end(ids):
    last = next((place for place, token in enumerate(ids[:NEW]) if token in ENDS), NEW - 1)
    return tuple(ids[: last + 1])


def ours(model, wanted, chain=""):
    """The same of gencli, all prompts together."""
    on = Engine(HFRunner(model, max_lanes=16), Ids(), max_batch=16)
    for i, (prompt, beams) in enumerate(wanted):
        on.submit(Request(str(i), prompt, Chain.parse(chain), n=beams.width, limits=Limits(NEW), beams=beams))
    ids, scores = {}, {}
    for event in on.run():
        place = int(event.request), event.sample
        if isinstance(event, Token):
            ids[place] = event.ids
        elif isinstance(event, Finish):
            scores[place] = event.score
    return [[(ids[i, j], scores[i, j]) for j in range(beams.width)] for i, (_, beams) in enumerate(wanted)]


def assert_same(found, expected):
    """Equal sequences and scores; of scores with the same four digits the shorter, then smaller ids."""
    for one, unordered in zip(found, expected, strict=True):
        other = sorted(unordered, key=lambda entry: (-rounded(entry[1]), len(entry[0]), entry[0]))
        assert [ids for ids, _ in one] == [ids for ids, _ in other]
        assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-4)


def check_heuristic(kind):
    model, wanted = model_of(kind), list(cases(early=(False,), penalties=(0.0,)))[:12]
    assert_same(ours(model, wanted), [theirs(model, *case, bound=False) for case in wanted])


def test_without_a_length_penalty_the_heuristic_is_the_bound():
    check_heuristic("qwen3")


def test_the_heuristic_of_transformers_can_miss_the_better_text():
    model = model_of("gpt2", ends=range(0, VOCAB, 4))
    wanted = list(cases(early=(False,), penalties=(1.0,)))[:12]
    found = [beams[0][1] for beams in ours(model, wanted)]
    heuristic = [theirs(model, *case, bound=False)[0][1] for case in wanted]
    assert all(one > other - 1e-5 for one, other in zip(found, heuristic, strict=True))
    assert any(one > other + 0.01 for one, other in zip(found, heuristic, strict=True))


def check_sequences(kind, count):
    model, wanted = model_of(kind), list(cases())[:count]
    found = ours(model, wanted)
    assert_same(found, [theirs(model, *case) for case in wanted])
    assert len({len(ids) for beams in found for ids, _ in beams}) > 5, kind  # texts end in many places


def check_stages(kind):
    model, wanted = model_of(kind, normalised=True), list(cases())[:18]
    for chain, options in (
        ("repetition:penalty=1.3,exempt=[]", {"repetition_penalty": 1.3}),
        ("min_tokens=6", {"min_new_tokens": 6}),
    ):
        expected = [theirs(model, *case, **options, renormalize_logits=True) for case in wanted]
        assert_same(ours(model, wanted, chain), expected)


def check_scores(kind):
    model, wanted = model_of(kind), list(cases(early=(False,)))[:6]
    for (prompt, beams), found in zip(wanted, ours(model, wanted), strict=True):
        for ids, score in found:
            with torch.inference_mode():
                logprobs = model(torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
            total = sum(logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(ids))
            assert score == pytest.approx(total / len(ids) ** beams.length_penalty, abs=1e-4), kind


def test_sequences_and_scores_are_those_of_transformers():
    check_sequences("llama", 18)  # each setting once


def test_penalties_and_minimal_lengths_are_those_of_transformers():
    check_stages("gpt2")


def test_scores_are_those_of_a_fresh_prefill():
    for kind in ("gemma3", "falcon_h1"):
        check_scores(kind)
