"""Hidden states for drafters: those of a plain pass over the text, whatever the steps fed and took back."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
import transformers as hf

from gencli.core.request import Drafting, Feed, Limits, Request, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.hf_runner import HFRunner
from gencli.models.model_runner import LAST
from gencli.speculative.drafter import DraftAsk, Drafter, Features
from processors.verification import Verification
from tests.engine.harness import ends_of, events_of, ids_of, request
from tests.models.native import native_decoder
from tests.models.tiny_models import base

TAPS = (0, 1, 3, LAST)


class Collecting(Drafter):
    """Proposes guesses, half of them right, and keeps tokens and states of each slot as a head would."""

    taps = TAPS

    def __init__(self, answers: dict[tuple[int, ...], tuple[int, ...]] | None = None) -> None:
        self.answers = answers or {}
        self.tokens: dict[int, list[int]] = {}
        self.states: dict[int, list[torch.Tensor]] = {}
        self.texts: dict[tuple[int, ...], torch.Tensor] = {}  # states of whole texts [L, taps, H]
        self.prompts: dict[int, tuple[int, ...]] = {}

    def admit(self, slot: int, request: Request) -> None:
        self.prompts[slot] = request.prompt_ids

    def propose(self, asks: Sequence[DraftAsk]) -> list[tuple[int, ...]]:
        return [self._guess(ask)[: ask.most] for ask in asks]

    def _guess(self, ask: DraftAsk) -> tuple[int, ...]:
        text, known = tuple(ask.tokens), self.tokens.get(ask.slot, [])
        assert len(text) == len(self.prompts[ask.slot]) or known == list(text[:-1])
        for prompt, output in self.answers.items():
            whole = (*prompt, *output)
            if whole[: len(text)] == text:
                run = whole[len(text) : len(text) + 4]
                return (*run[:2], *((token + 1) % 256 for token in run[2:]))
        return ()

    def fork(self, source: int, target: int) -> None:
        self.tokens[target], self.states[target] = [*self.tokens[source]], [*self.states[source]]

    def feed(self, parts: Sequence[Features]) -> None:
        for part in parts:
            tokens, states = self.tokens.setdefault(part.slot, []), self.states.setdefault(part.slot, [])
            assert tokens[: part.start] == list(part.tokens[: part.start])
            assert [len(rows) for rows in part.states] == [part.end - part.start] * len(TAPS)
            self.tokens[part.slot] = list(part.tokens[: part.end])
            rows = torch.stack(part.states, 1).clone()
            self.states[part.slot] = [*states[: part.start], *rows]
            self.texts[tuple(self.tokens[part.slot])] = torch.stack(self.states[part.slot])


@pytest.fixture(scope="module")
def model():
    config = hf.LlamaConfig(**base(num_hidden_layers=4, vocab_size=258))
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(config).eval()


def expected(model, tokens: tuple[int, ...]) -> torch.Tensor:
    """The states of a pass over the whole text [L, taps, H], by transformers."""
    with torch.inference_mode():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    assert len(states) > max(TAPS) + 1
    return torch.stack([states[tap][0] for tap in TAPS], 1)


def native(model):
    return DecoderRunner(native_decoder(model), max_lanes=16)


def hugging_face(model):
    return HFRunner(model, max_lanes=16)


def run(model, requests, drafter: Collecting | None = None, make=native, **options):
    runner = make(model)
    events = events_of(requests, runner=runner, drafter=drafter, **options)
    return ids_of(events), ends_of(events)


def wanted(text: str, **rest):
    return request(text, chain="temperature=0.8", drafting=Drafting(tokens=4), **rest)


def test_both_runners_give_the_same_logits_of_layers(model):
    feeds = (Feed(3, 0, (1, 2, 3, 4), 2), Feed(0, 0, (5, 6)), Feed(1, 0, (7,), 0))
    found = []
    for make in (native, hugging_face):
        logits, inner = make(model).forward_layers(StepPlan(feeds), [0, 2], lanes=[3, 1], taps=[4])
        found.append((logits, inner.early(0), inner.early(2), inner.taps[4]))
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [native, hugging_face])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_batch": 2}, id="slots in turn"),
        pytest.param({"max_batch": 4, "step_tokens": 16}, id="prompts in chunks"),
        pytest.param({"max_batch": 4, "share_prefixes": False}, id="no prefix shared"),
    ],
)
def test_states_are_those_of_a_plain_pass(model, options, make):
    requests = [
        wanted("A text of some length, that many begin with: one", key=1, n=3),
        wanted("A text of some length, that many begin with: two", key=2),
        wanted("Short", key=3, session="s"),
        wanted("Another text, which has nothing in common with them.", key=4, limits=Limits(max_tokens=9)),
    ]
    plain, _ = run(model, [replace(one, drafting=Drafting()) for one in requests], make=make, **options)
    # The plain output of the first sample is what is guessed.
    drafter = Collecting({one.prompt_ids: plain[one.id, 0] for one in requests})
    ids, ends = run(model, requests, drafter, make, **options)
    assert ids == plain
    assert sum(sum(end.drafted.accepted) for end in ends.values()) > 20
    assert len(drafter.texts) > 40
    for tokens, states in drafter.texts.items():
        torch.testing.assert_close(states, expected(model, tokens), rtol=1e-4, atol=1e-4)


def test_a_prefix_in_the_cache_is_not_used_where_drafts_decide_the_text(model):
    first = request("A text of some length, that many begin with: one", key=1)
    drafted = wanted("A text of some length, that many begin with: one", key=2)
    drafter = Collecting()
    drafting = replace(drafted.drafting, verification=Verification("rejection"))
    requests = [first, replace(drafted, drafting=drafting)]
    run(model, requests, drafter, max_batch=1)
    assert all(tokens[: len(first.prompt_ids)] == first.prompt_ids for tokens in drafter.texts)
    for tokens, states in drafter.texts.items():
        torch.testing.assert_close(states, expected(model, tokens), rtol=1e-4, atol=1e-4)
