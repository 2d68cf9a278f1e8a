"""Architectures beside those of tests/models: saved, loaded, and run by the engine as transformers runs them.

Alone, side by side, with drafts and with prompts in chunks, a greedy text has the ids of `generate()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from gencli.core.events import Error, Token
from gencli.core.request import Feed, Limits, Request, StepPlan
from gencli.engine.engine import Engine
from gencli.errors import ModelError
from gencli.models.files.model_card import Card, read_card
from gencli.models.hf_runner import HFRunner, load_model
from gencli.text.tokenizer import ByteTokenizer
from processors.chain import Chain
from tests.engine.harness import Scripted
from tests.models.loops import Job, decode
from tests.models.tiny_models import PROMPTS, continued
from tests.nightly.models.more_models import REFUSED, SIZES, build_more

COUNT = 32


@dataclass(frozen=True)
class Case:
    """A model, which was loaded from a folder; what generate() says, and what the folder's files tell."""

    kind: str
    model: Any
    texts: list[list[int]]
    card: Card

    def check(self, way: str, engine: Engine, *, together: bool = True) -> None:
        """Compare the engine's texts with generate()'s."""
        found: dict[str, list[int]] = {}
        groups = [PROMPTS] if together else [[prompt] for prompt in PROMPTS]
        for prompts in groups:
            for prompt in prompts:
                chain = Chain.parse("ignore_eos=true | temperature=0")
                engine.submit(Request(str(prompt), tuple(prompt), chain=chain, limits=Limits(COUNT)))
            for event in engine.run():
                assert not isinstance(event, Error), f"{self.kind} {way}: {event}"
                if isinstance(event, Token):
                    found.setdefault(event.request, []).extend(event.ids)
        for prompt, text in zip(PROMPTS, self.texts, strict=True):
            assert found[str(prompt)] == text, f"{self.kind} {way}: the prompt of {len(prompt)} tokens"

    def engine(self, **options: Any) -> Engine:
        return Engine(HFRunner(self.model, name=self.kind), ByteTokenizer(), **options)


@pytest.fixture(scope="module", params=SIZES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    kind: str = request.param
    if kind not in hf.CONFIG_MAPPING:
        pytest.skip(f"transformers {hf.__version__} has no {kind}.")
    folder: Path = tmp_path_factory.mktemp(kind)
    model = build_more(kind)
    model.save_pretrained(folder)
    loaded, *_ = load_model(str(folder), dtype="float32", device="cpu", trust_remote_code=False)
    return Case(kind, loaded, continued(model, COUNT), read_card(folder))


def test_the_texts_are_varied_enough_to_mean_something(case: Case) -> None:
    assert min(len(set(text)) for text in case.texts) >= 8, case.kind


def test_a_text_alone_is_that_of_generate(case: Case) -> None:
    case.check("alone", case.engine(max_batch=1), together=False)


def test_texts_side_by_side_are_those_of_each_alone(case: Case) -> None:
    case.check("batched", case.engine())


def test_drafts_change_no_text(case: Case) -> None:
    """Each third draft is wrong; a model that cannot forget takes none."""
    pairs = zip(PROMPTS, case.texts, strict=True)
    drafter = Scripted({tuple(prompt): tuple(text) for prompt, text in pairs})
    case.check("with drafts", case.engine(drafter=drafter))
    assert bool(drafter.proposed) == case.card.can_rollback, case.kind


def test_prompts_in_chunks_change_no_text(case: Case) -> None:
    case.check("in chunks of up to 16 tokens", case.engine(step_tokens=16))
    jobs = [Job(lane, list(prompt)) for lane, prompt in enumerate(PROMPTS)]
    assert decode(HFRunner(case.model), jobs, count=COUNT, chunk=5) == case.texts, (
        f"{case.kind} in chunks of 5"
    )


def test_logits_of_many_places_of_a_prompt_are_those_of_a_plain_pass(case: Case) -> None:
    """As scores of prompts need them."""
    prompt = PROMPTS[3]
    with torch.inference_mode():
        expected = case.model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, 11:]
    found = HFRunner(case.model).forward(StepPlan((Feed(0, 0, tuple(prompt), len(expected)),)))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4, msg=lambda text: f"{case.kind}: {text}")


def test_the_card_says_how_the_lanes_are_run(case: Case) -> None:
    spec = HFRunner(case.model).spec
    lanes = "own" if any("one request at a time" in text for text in spec.notices) else "shared"
    assert (case.card.lanes, case.card.can_rollback) == (lanes, spec.can_rollback), case.kind


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_run_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[kind][1]):
        HFRunner(build_more(kind))
