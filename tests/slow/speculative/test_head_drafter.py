"""Texts with draft heads are those without drafts, and where drafts decide them those of any batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers as hf

from gencli.core.request import Drafting
from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.draft_model import AutoregressiveDrafter
from gencli.speculative.head_drafter import HeadDrafter
from gencli.speculative.head_files import open_head, open_mtp
from gencli.speculative.head_models import read_head
from processors.verification import Verification
from tests.engine.harness import ends_of, events_of, ids_of, request
from tests.models.native import native_decoder
from tests.models.tiny_models import base
from tests.speculative.head_cases import DRAFTING, MTP
from tests.speculative.tiny_heads import HEADS, Shape

SHAPE = Shape(vocab=258)


@pytest.fixture(scope="module")
def runner():
    torch.manual_seed(0)
    config = hf.LlamaConfig(**base(num_hidden_layers=SHAPE.layers, vocab_size=SHAPE.vocab))
    return DecoderRunner(native_decoder(hf.AutoModelForCausalLM.from_config(config).eval()), max_lanes=16)


class Fixed(HeadDrafter):
    """Drafts four tokens, whatever they cost."""

    def propose(self, asks):
        return super().propose([replace(ask, most=min(ask.most, 4)) for ask in asks])


def drafter_of(kind, runner, folder) -> AutoregressiveDrafter:
    if kind in MTP:
        file = open_mtp(str(MTP[kind](SHAPE).target.write(folder / kind)), runner.spec)
    else:
        head = HEADS[kind](SHAPE)
        file = open_head(str(head.write(folder / kind)), runner.spec)
    return Fixed(read_head(file, runner), runner.spec, max_lanes=8)


def requests():
    greedy, drawn = "temperature=0", "temperature=1.2 | top_p=0.9 | frequency=0.5"
    made = [
        request("A text of some length, that many begin with: one", key=1, n=2, chain=drawn),
        request("A text of some length, that many begin with: two", key=2, chain=greedy),
        request("Short", key=3, session="s", chain=drawn),
        request("Another text, which has nothing in common with them.", key=4, chain=greedy),
        request("abcabcabc", key=5, chain='ban=["ab"] | temperature=0.7'),
    ]
    return [replace(one, drafting=Drafting("", 4)) for one in made]


def outcome(wanted, runner, **options):
    events = events_of(wanted, runner=runner, **options)
    ids, ends = ids_of(events), ends_of(events)
    return ids, sum(sum(end.drafted.accepted) for end in ends.values() if end.drafted)


@pytest.mark.parametrize("kind", DRAFTING)
def test_texts_are_those_without_drafts(kind, runner, tmp_path):
    wanted = requests()
    plain, _ = outcome([replace(one, drafting=Drafting("none")) for one in wanted], runner)
    drafter = drafter_of(kind, runner, tmp_path)
    for options in ({"max_batch": 2}, {"max_batch": 5, "step_tokens": 24}):
        ids, accepted = outcome(wanted, runner, drafter=drafter, **options)
        assert ids == plain
        assert accepted > 0


@pytest.mark.parametrize(
    "kind", ["eagle3", "medusa", "deepseek llama of three layers", "dflash", "dspark speculators"]
)
def test_texts_that_drafts_decide_are_those_of_any_batch(kind, runner, tmp_path):
    verification = Verification("rejection")
    wanted = [
        replace(one, drafting=Drafting("", 4, verification=verification), seed=number)
        for number, one in enumerate(requests())
    ]
    drafter = drafter_of(kind, runner, tmp_path)
    first, accepted = outcome(wanted, runner, drafter=drafter, max_batch=1)
    assert accepted > 0
    for options in ({"max_batch": 2}, {"max_batch": 5, "step_tokens": 24}):
        assert outcome(wanted, runner, drafter=drafter, **options)[0] == first
