"""`Bench`: a stage under test with its own history, and the requests and logits of the checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.foreign import checked_logits
from processors.history import History
from processors.params import Params
from processors.reference import Twin, View
from processors.rows import Rows
from processors.testing.examples import examples
from processors.testing.vocabulary import ToyVocabulary

__all__ = ["SEED", "TEXTS", "Bench", "Subject", "Text", "random_logits", "toy_env"]


def toy_env() -> Env:
    """Return the toy vocabulary with a model of five more ids."""
    vocabulary = ToyVocabulary()
    return Env(vocabulary.vocab_size + 5, vocabulary, vocabulary.eos_ids)


SEED = 0  # seed of all requests, so that a random number is the same alone, in a batch and in a fork


@dataclass(frozen=True, slots=True)
class Text:
    """A request in progress: prompt, output so far, stop ids, up to three drafts."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    drafts: tuple[int, ...]
    stop_ids: tuple[int, ...] = ()

    @property
    def admission(self) -> Admission:
        """The Admission of the request."""
        return Admission(self.prompt, self.stop_ids)

    def view(self, env: Env, num_drafts: int) -> View:
        """Return the twin's view of the row that sees `num_drafts` drafts."""
        output = self.output + self.drafts[:num_drafts]
        return View(self.prompt, output, self.stop_ids, env.eos_ids, env.vocabulary, seed=SEED)


def _text(prompt: str, output: str, drafts: str, *stop_ids: int) -> Text:
    encode = ToyVocabulary().encode
    return Text(
        tuple(encode(prompt)),
        tuple(encode(output, special=False)),
        tuple(encode(drafts, special=False)[:3]),
        stop_ids,
    )


TEXTS: tuple[Text, ...] = (
    _text("the cat", " sat. the cat the", " ca😀", 9),
    _text("abab ab", "a", "bab"),
    _text("say 😀é\n", "", "\n\né", 5, 1),
    Text((), (), (12, 12, 30)),
    Text((0, 2, 3, 1), (2, 7, 7, 7, 1, 0), (1, 7, 2), (7,)),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A stage under test, parameters that switch it on, and its twin if it has one."""

    stage: type[Processor[Any]]
    params: tuple[Params, ...]
    env: Env = field(default_factory=toy_env)
    twin: Twin | None = None
    texts: tuple[Text, ...] = TEXTS

    @classmethod
    def of(cls, stage: type[Processor[Any]], params: Sequence[Params] = (), **others: Any) -> Subject:
        """Build a subject; without `params`, examples are guessed."""
        return cls(stage, tuple(params) or examples(stage.Params), **others)

    @property
    def commits(self) -> bool:
        """Whether the stage overrides `commit`."""
        return self.stage.commit is not Processor.commit

    def cases(self) -> list[tuple[Params, Text]]:
        """Pair the parameters with the texts so that each occurs at least once."""
        count = max(len(self.params), len(self.texts))
        return [(self.params[i % len(self.params)], self.texts[i % len(self.texts)]) for i in range(count)]


class Bench:
    """Admits requests and applies the stage to rows, as a pipeline does, without a guard."""

    def __init__(self, subject: Subject) -> None:
        self.stage = subject.stage(subject.env)
        self.history = History(subject.env.device, slots=2, length=4)

    def admit(self, slot: int, params: Params, text: Text) -> None:
        """Admit a request to the slot and commit its output so far."""
        self.history.admit(slot, text.prompt, seed=SEED)
        self.stage.admit(slot, params, text.admission)
        self.commit(slot, text.output)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens of the request."""
        self.history.append([slot], [tokens])
        self.stage.commit(slot, tokens)

    def fork(self, source: int, target: int) -> None:
        """Copy a slot."""
        self.history.fork(source, target, seed=SEED)
        self.stage.fork(source, target)

    def release(self, slot: int) -> None:
        """Empty a slot."""
        self.history.release(slot)
        self.stage.release(slot)

    def apply(self, logits: Tensor, slots: Sequence[int], drafts: Sequence[Sequence[int]] = ()) -> Tensor:
        """Return processed logits of the rows of these slots; the input is not changed.

        Raises WrongResult for an invalid result. Other floating-point types are cast, as in a run.
        """
        return checked_logits(self.raw(logits, slots, drafts), logits)

    def raw(self, logits: Tensor, slots: Sequence[int], drafts: Sequence[Sequence[int]] = ()) -> object:
        """Return the unchecked result of the stage for the rows of these slots."""
        return self.stage.apply(logits.clone(), Rows.build(self.history, slots, drafts))


def random_logits(rows: int, env: Env, *, seed: int = 0, masked: bool = False) -> Tensor:
    """Return logits [rows, V]: in turn plain, with ties, with wide gaps; `masked` masks 30 % of them."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, env.vocab_size, generator=generator)
    logits[1::3] = logits[1::3].round()
    logits[2::3] *= 30
    if masked:
        logits[torch.rand(rows, env.vocab_size, generator=generator) < 0.3] = -math.inf
    return logits.to(env.device)
