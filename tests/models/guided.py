"""Guided texts of tiny models: by the engine, with the logits of each step, and by the library."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import transformers as hf

from gencli.core.events import Token
from gencli.core.request import Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.text.tokenizer import ByteTokenizer
from processors.base import Processor
from processors.catalog import BUILTIN, Phase
from processors.chain import Chain
from processors.params import Params, param
from processors.registry import Registry
from tests.models.tiny_models import CONFIGS

COUNT = 40
# (tokens of the prompt, of the negative prompt or none, scale)
CASES = [(5, 9, 1.5), (17, 3, 3.0), (8, None, 2.0), (12, 30, 0.5), (6, 4, 0.0), (9, 7, 1.0)]


@dataclass(frozen=True)
class SeenParams(Params):
    on: bool = param(False, "Whether logits are kept.")


class Seen(Processor[SeenParams]):
    """Keeps what the first stage is given."""

    name, phase, Params = "seen", Phase.CONSTRAIN, SeenParams
    logits: ClassVar[list[torch.Tensor]] = []

    def apply(self, logits, rows):
        self.logits.append(logits.clone())
        return logits


def build(kind):
    torch.manual_seed(2)
    config = CONFIGS[kind]()
    config.vocab_size = 258
    return hf.AutoModelForCausalLM.from_config(config).eval()


def ids(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 250, (count,), generator=generator).tolist())


def request(case, *, draw="greedy", chain="", registry=None):
    prompt, negative, scale = case
    found = negative and ids(negative, 100 + negative)
    guidance = Guidance(scale, found)
    return Request(
        str(case), ids(prompt, prompt), Chain.parse(chain, registry), draw=draw, guidance=guidance,
        limits=Limits(COUNT), jump="off",
    )  # fmt: skip


def engine(model, **options):
    return Engine(HFRunner(model, max_lanes=16), ByteTokenizer(), **options)


def generated(requests, on):
    found = {one.id: [] for one in requests}
    for one in requests:
        on.submit(one)
    for event in on.run():
        if isinstance(event, Token):
            found[event.request] += event.ids
    return found


def by_library(model, one):
    """Ids and scores of generate()."""
    negative = one.guidance.negative
    options = {} if negative is None else {"negative_prompt_ids": torch.tensor([negative])}
    made = model.generate(
        torch.tensor([one.prompt_ids]), do_sample=False, max_new_tokens=COUNT, output_scores=True,
        guidance_scale=one.guidance.scale, return_dict_in_generate=True, eos_token_id=257,
        pad_token_id=0, **options,
    )  # fmt: skip
    return made.sequences[0, len(one.prompt_ids) :].tolist(), torch.cat(made.scores)


def by_engine(model, case):
    """Ids and logits [COUNT, V] of the engine."""
    registry = Registry(BUILTIN)
    registry.register(Seen)
    Seen.logits.clear()
    one = request(case, chain="seen:on=true", registry=registry)
    return generated([one], engine(model, registry=registry))[one.id], torch.cat(Seen.logits)
