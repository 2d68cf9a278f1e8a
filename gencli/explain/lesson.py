"""A lesson: one fixed row of logits, and the effect of a chain on it, stage by stage. No model is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from gencli.explain.token_record import ListVocabulary
from gencli.plugins.plugin_registry import sentence
from processors.base import Admission, Env
from processors.catalog import Draw
from processors.chain import Chain
from processors.registry import Registry, builtin_registry
from processors.standalone import ChainRun

_TEXT_WORDS = ("The", " cat", " sat", " on", " the", " mat", ".", " The", " dog", " sat", " on", " the")
TEXT = "".join(_TEXT_WORDS)
# Probabilities that a model might give the next word; "mat" is in the text, after the same three words.
WORDS = {
    " mat": 0.30, " floor": 0.22, " sofa": 0.15, " chair": 0.11, " bed": 0.08, " roof": 0.05,
    " table": 0.04, " grass": 0.025, " moon": 0.012, " idea": 0.007, " Tuesday": 0.004, " of": 0.002,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """The words' probabilities after a stage; 0 for a removed word. `about`: the effect of the stage."""

    title: str
    about: str
    p: tuple[float, ...]

    @property
    def entropy(self) -> float:
        """Entropy in nats."""
        return -math.fsum(p * math.log(p) for p in self.p if p > 0)


@dataclass(frozen=True, slots=True)
class Lesson:
    """The column of the model and one for each stage; the drawn word."""

    columns: tuple[Column, ...]
    draw: Draw
    drawn: str


def make_lesson(chain: Chain, draw: Draw, seed: int, registry: Registry | None = None) -> Lesson:
    """Return the lesson of a chain. Raises ProcessorsError for a chain that cannot run on the words."""
    registry = registry or builtin_registry()
    count, words = len(WORDS), [*dict.fromkeys((*WORDS, *_TEXT_WORDS))]
    env = Env(len(words), ListVocabulary(words))
    request = Admission(tuple(words.index(word) for word in _TEXT_WORDS), max_tokens=16)
    run = ChainRun(chain, env, seeds=[seed], draw=draw, request=request, registry=registry)
    logits, shares, rows = torch.full((1, len(words)), -torch.inf), list[list[float]](), run.rows()
    logits[0, :count] = torch.tensor(list(WORDS.values())).log()
    run.pipeline(logits, rows, lambda _, after: shares.append(after[0, :count].double().softmax(-1).tolist()))
    chosen = run.choose(logits, rows)
    token = int(chosen.tokens[0])
    if token < 0:
        raise run.pipeline.explain_failure(logits, rows, 0)
    texts = [str(Chain((stage,))) for stage in run.chain]
    columns = [Column("model", "", tuple(WORDS.values()))]
    for text, (name, _), p in zip(texts, run.chain, shares, strict=True):
        columns.append(Column(text, sentence(registry, name), tuple(p)))
    return Lesson(tuple(columns), run.draw, words[token])
