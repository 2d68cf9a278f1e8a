"""Trees of each drafter change no text, and are right more often than its chains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gencli.core.request import Drafting, Guidance
from gencli.core.tree_shapes import read_tree_shape
from gencli.models.decoder.decoder import DecoderRunner
from gencli.runtime.wiring import _BUILT_IN, read_draft_head
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.draft_model import ModelDrafter
from gencli.speculative.drafter import NgramDrafter, OuterDrafter, SuffixDrafter
from gencli.speculative.head_drafter import HeadDrafter
from gencli.speculative.head_files import open_mtp
from gencli.speculative.head_models import read_head
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from tests.engine.harness import ends_of, events_of, ids_of, request
from tests.engine.tree_cases import runner
from tests.models.native import native_decoder
from tests.speculative.cases import LETTERS, of_edges
from tests.speculative.copying_heads import copied, copying
from tests.speculative.head_runs import choice, conditioned, loaded, pair
from tests.speculative.timed import Ticking

STATIC = "[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0],[0,0,1],[1,0,0],[0,1,0],[0,0,0,0]]"
SHAPES = (STATIC, "3x4x12", "auto")
DRAFTERS = {
    "ngram": lambda target: NgramDrafter(),
    "suffix": lambda target: SuffixDrafter(),
    "auto": lambda target: _BUILT_IN["auto"](),
    "model": lambda target: ModelDrafter(runner("full").first_layers(1, max_lanes=8)),
    "target": lambda target: ModelDrafter(runner("full")),
}


def requests():
    """Requests of every kind that the vocabulary has."""
    found = [*of_edges()]
    found += [
        request("abcab", key="guided", chain=LETTERS, guidance=Guidance(1.5)),
        request("abcab", key="logprobs", chain=LETTERS, logprobs=2),
        request(
            "abcab", key="pattern", chain=Chain((("grammar", GrammarParams("(ab|ac|b[a-d])+", "regex")),))
        ),
        request(
            "ab",
            key="greedy pattern",
            draw="greedy",
            chain=Chain((("grammar", GrammarParams("[ab]+", "regex")),)),
        ),
    ]
    return found


def drafted(shape, *, tokens=4, asked=None):
    drafting = Drafting("", tokens, tree=None if shape is None else read_tree_shape(shape))
    return [replace(one, drafting=drafting, jump="off") for one in asked or requests()]


def told(events):
    ends = {key: (end.text, end.reason) for key, end in ends_of(events).items()}
    return ids_of(events), ends


def counts(events):
    """Accepted draft tokens, and nodes."""
    marks = [end.drafted for end in ends_of(events).values() if end.drafted]
    return sum(sum(mark.accepted) for mark in marks), sum(mark.nodes for mark in marks)


@pytest.mark.parametrize("name", DRAFTERS)
def test_trees_of_a_drafter_change_no_text_and_are_right_more_often_than_chains(name):
    target = runner("full")
    plain = told(events_of([replace(one, jump="off") for one in requests()], runner=target, max_batch=5))
    found = {}
    for shape, max_batch in ((None, 5), (STATIC, 5), ("3x4x12", 1), ("3x4x12", 5), ("auto", 5)):
        drafter = AdaptiveDrafter(DRAFTERS[name](target), clock=Ticking())
        events = events_of(drafted(shape), runner=target, drafter=drafter, max_batch=max_batch)
        assert told(events) == plain, (shape, max_batch)
        found[shape] = counts(events)
    chain, _ = found.pop(None)
    for shape, (accepted, nodes) in found.items():
        # A drafter that is always right has nothing to gain, and loses paths that it finds improbable.
        assert accepted >= (0.97 if name == "target" else 1) * chain > 100, shape
        assert nodes > 0
    assert max(accepted for accepted, _ in found.values()) > chain or name == "target"


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_of_a_head_change_no_text(shape, tmp_path):
    target, head = copying(tmp_path)
    plain = told(events_of(copied(), runner=target))
    for options in ({"max_batch": 1}, {"max_batch": 3, "step_tokens": 24}):
        drafter = AdaptiveDrafter(HeadDrafter(head, target.spec, max_lanes=8), clock=Ticking())
        events = events_of(drafted(shape, asked=copied()), runner=target, drafter=drafter, **options)
        assert told(events) == plain
        accepted, nodes = counts(events)
        assert nodes > accepted > 60
        drafts = [end.drafted for end in ends_of(events).values()]
        assert all(sum(each.accepted) == sum(each.proposed) for each in drafts)


class Recording(OuterDrafter):
    """A drafter whose proposals are counted."""

    proposed = 0

    def propose(self, asks):
        runs = self._inner[0].propose(asks)
        self.proposed += sum(map(len, runs))
        return runs


@pytest.mark.parametrize("shape", SHAPES)
def test_rankings_of_a_depth_follow_a_grammar_on_each_path(shape):
    asked = drafted(shape, asked=conditioned("schema", 4))
    model = loaded("medusa")
    head, _, _ = read_draft_head(pair("medusa").head, model, choice("medusa"))
    drafter = Recording(HeadDrafter(head, model.runner.spec, max_lanes=8))
    events = events_of(asked, runner=model.runner, tokenizer=model.tokenizer, drafter=drafter, max_batch=4)
    accepted, nodes = counts(events)
    assert nodes == drafter.proposed  # nothing is cut
    assert accepted > 20
