"""Two sides of a comparison on one engine: A's text with its places, and the text of B's own run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gencli.config.job import Job, make_requests
from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import Request
from gencli.engine.admission import admission
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.explain.compare import Comparison, Output, Place, SideBySide
from gencli.explain.replay import Replay
from gencli.runtime.models import Loaded
from processors.base import Compiler, Env
from processors.explain.kept import KeptLogits

__all__ = ["Comparing"]


@dataclass(slots=True)
class _Pair:
    """A prompt while its two texts are generated."""

    prompt: str
    requests: tuple[Request, Request]
    places: list[Place] = field(default_factory=list)
    tokens: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    ends: list[Finish | Error | None] = field(default_factory=lambda: [None, None])
    along: SideBySide | None = None


class Comparing:
    """Compares the jobs of A and B, which have the same prompts and seed, on one engine.

    A's requests are explained and keep all their logits, which are measured as they come.
    """

    def __init__(self, engine: Engine, loaded: Loaded, grammars: Compiler, a: Job, b: Job) -> None:
        self._engine, self._jobs, self._loaded = engine, (a, b), loaded
        spec, tokenizer = loaded.runner.spec, loaded.tokenizer
        self._env = Env(spec.vocab_size, tokenizer, engine.eos_ids, grammars=grammars)

    def run(self, prompts: Sequence[str]) -> Iterator[Comparison]:
        """Yield the comparisons in the order of the prompts.

        Raises UsageError, ConfigError or ProcessorsError for a request that cannot run.
        """
        pairs = dict[str, _Pair]()
        each = (make_requests(job, prompts, self._loaded.tokenizer) for job in self._jobs)
        for prompt, a, b in zip(prompts, *each, strict=True):
            if a.prompt_ids != b.prompt_ids:
                raise UsageError("The prompts of A and B have different tokens, so they cannot be compared.")
            pairs[a.id] = pair = _Pair(prompt, (_explained(a, self._env.vocab_size), b))
            for name, request in zip("ab", pair.requests, strict=True):
                self._engine.submit(replace(request, id=f"{request.id}{name}"))
        for event in self._engine.run():
            pair, side = pairs[event.request[:-1]], "ab".index(event.request[-1])
            self._add(pair, side, event)
            while pairs and None not in pairs[first := next(iter(pairs))].ends:
                yield _comparison(first, pairs.pop(first))

    def _add(self, pair: _Pair, side: int, event: Event) -> None:
        if isinstance(event, Finish | Error):
            pair.ends[side] = event
        elif isinstance(event, Token):
            pair.tokens[side].extend(event.ids)
            for view in event.views:
                assert view.kept is not None
                if pair.along is None:
                    pair.along = SideBySide(*(self._replay(r, view.kept) for r in pair.requests))
                pair.places.append(pair.along.place(view.token, view.kept, view.decided_by))

    def _replay(self, request: Request, kept: KeptLogits) -> Replay:
        told = admission(request, self._loaded.runner.spec.context)
        registry = self._jobs[0].registry
        return Replay(request.chain, self._env, kept, draw=request.draw, request=told, registry=registry)


def _explained(request: Request, vocab_size: int) -> Request:
    return replace(request, trace=1, keep_logits=vocab_size)


def _comparison(name: str, pair: _Pair) -> Comparison:
    a, b = map(_output, pair.ends, pair.tokens)
    return Comparison(name, pair.prompt, a, b, tuple(pair.places))


def _output(end: Finish | Error | None, tokens: Sequence[int]) -> Output:
    if isinstance(end, Finish):
        return Output(tuple(tokens), end.text, end.reason)
    assert end is not None
    return Output(tuple(tokens), end.text, "error", f"{end.type}: {end.message}")
