"""Runs the two sides of a comparison: A's text with its positions, and the text of B's own run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gencli.config.job import Job, make_requests
from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.engine.slot_state import admission
from gencli.errors import GenerationError, UsageError
from gencli.explain.chain_comparison import ComparedPlace, Comparison, SideBySide, SideOutput
from gencli.explain.replay import Replay
from gencli.explain.token_record import token_text
from gencli.results.run_results import LATE
from gencli.runtime.model_loading import Loaded
from processors.base import Compiler, Env
from processors.chain import Chain
from processors.explain_rows import KeptLogits

_Pair = tuple[Request, Request]  # the requests of A and B for one prompt


@dataclass(frozen=True, slots=True)
class SideRun:
    """One side: the engine, model and grammars that generate its texts, and its job."""

    engine: Engine
    loaded: Loaded
    grammars: Compiler
    job: Job

    def replay(self, request: Request, kept: KeptLogits) -> Replay:
        """Return a replay of the chain at the first token of a text, from the `kept` logits."""
        env = Env(kept.vocab_size, self.loaded.tokenizer, self.engine.eos_ids, grammars=self.grammars)
        values = admission(request, self.loaded.runner.spec.context)
        return Replay(request.chain, env, kept, draw=request.draw, request=values, registry=self.job.registry)


def _pairs(a: SideRun, b: SideRun, prompts: Sequence[str]) -> list[_Pair]:
    """Return the requests of both sides. Raises UsageError for prompts with different tokens."""
    each = (make_requests(side.job, prompts, side.loaded.tokenizer) for side in (a, b))
    pairs = [*zip(*each, strict=True)]
    if any(first.prompt_ids != second.prompt_ids for first, second in pairs):
        raise UsageError("The prompts of A and B have different tokens, so they cannot be compared.")
    return pairs


@dataclass(slots=True)
class _GrowingText:
    """A text while it is generated."""

    tokens: list[int] = field(default_factory=list)
    end: Finish | Error | None = None

    def add(self, event: Event) -> None:
        if isinstance(event, Token):
            self.tokens.extend(event.ids)
        elif isinstance(event, Finish | Error):
            self.end = event

    @property
    def output(self) -> SideOutput:
        assert self.end is not None
        if isinstance(self.end, Finish):
            error = LATE if self.end.is_late else ""
            return SideOutput(tuple(self.tokens), self.end.text, self.end.reason, error)
        return SideOutput(tuple(self.tokens), self.end.text, "error", f"{self.end.type}: {self.end.message}")


@dataclass(slots=True)
class _Both:
    """A prompt and its two texts during generation."""

    prompt: str
    requests: _Pair
    texts: tuple[_GrowingText, _GrowingText] = field(default_factory=lambda: (_GrowingText(), _GrowingText()))
    places: list[ComparedPlace] = field(default_factory=list)
    along: SideBySide | None = None

    @property
    def is_complete(self) -> bool:
        return all(text.end is not None for text in self.texts)


def compare(a: SideRun, b: SideRun, prompts: Sequence[str]) -> Iterator[Comparison]:
    """Yield the comparisons of two sides on one engine, in the order of the prompts.

    A's requests are explained and keep all their logits, which are measured while A is generated. Raises
    UsageError, ConfigError or ProcessorsError for a request that cannot run.
    """
    open_ = dict[str, _Both]()
    for prompt, requests in zip(prompts, _pairs(a, b, prompts), strict=True):
        open_[requests[0].id] = _Both(prompt, requests)
        explained = replace(requests[0], trace=1, keep_logits=a.loaded.runner.spec.vocab_size)
        for name, request in zip("ab", (explained, requests[1]), strict=True):
            a.engine.submit(replace(request, id=f"{request.id}{name}"))
    for event in a.engine.run():
        both = open_[event.request[:-1]]
        both.texts["ab".index(event.request[-1])].add(event)
        for view in event.views if isinstance(event, Token) else ():
            assert view.kept is not None
            if both.along is None:
                both.along = SideBySide(*map(SideRun.replay, (a, b), both.requests, [view.kept] * 2))
            both.places.append(both.along.place(view.token, view.kept, view.decided_by))
        while open_ and (first := open_[name := next(iter(open_))]).is_complete:
            del open_[name]
            of_a, of_b = (text.output for text in first.texts)
            yield _comparison(name, first.prompt, a, of_a, of_b, first.places)


def compare_models(a: SideRun, b: SideRun, prompts: Sequence[str]) -> Iterator[Comparison]:
    """Yield the comparisons of two sides with a model each, in the order of the prompts.

    Both texts are generated, then both models read A's text, so that B's logits follow A's tokens too. The
    models have equal vocabularies. Raises the errors of `compare`.
    """
    pairs = _pairs(a, b, prompts)
    texts = [_generated(side.engine, [pair[n] for pair in pairs]) for n, side in enumerate((a, b))]
    for prompt, pair, of_a, of_b in zip(prompts, pairs, *texts, strict=True):
        places = [*_read(a, b, pair, of_a.tokens)] if of_a.tokens else []
        yield _comparison(pair[0].id, prompt, a, of_a, of_b, places)


def _comparison(
    name: str, prompt: str, a: SideRun, of_a: SideOutput, of_b: SideOutput, places: Sequence[ComparedPlace]
) -> Comparison:
    ids = {*of_a.tokens, *of_b.tokens, *(compared.b for compared in places if compared.b is not None)}
    names = {token: token_text(token, a.loaded.tokenizer) for token in sorted(ids)}
    return Comparison(name, prompt, of_a, of_b, tuple(places), names)


def _generated(engine: Engine, requests: Sequence[Request]) -> list[SideOutput]:
    running = {request.id: _GrowingText() for request in requests}
    for request in requests:
        engine.submit(request)
    for event in engine.run():
        running[event.request].add(event)
    return [text.output for text in running.values()]


def _read(a: SideRun, b: SideRun, pair: _Pair, tokens: tuple[int, ...]) -> Iterator[ComparedPlace]:
    """Yield the positions of A's text, which both models read step by step."""
    size = min(side.loaded.runner.spec.vocab_size for side in (a, b))
    rows = (_rows(side.engine, request, tokens, size) for side, request in zip((a, b), pair, strict=True))
    along = None
    for token, *kept in zip(tokens, *rows, strict=False):  # an interrupted text is shorter
        along = along or SideBySide(*map(SideRun.replay, (a, b), pair, kept))
        yield along.place(token, kept[0], other=kept[1])


def _rows(engine: Engine, request: Request, tokens: tuple[int, ...], size: int) -> Iterator[KeptLogits]:
    """Yield the logits of the first `size` ids at each token of a given text. Raises GenerationError."""
    limits = Limits(max(request.limits.max_tokens, len(tokens)))
    plain = replace(request, chain=Chain(), draw="gumbel", limits=limits, given=tokens)
    engine.submit(replace(plain, trace=1, keep_logits=engine.pipeline.env.vocab_size))
    for event in engine.run():
        if isinstance(event, Error):
            raise GenerationError(f"A's text cannot be read: {event.message}")
        for view in event.views if isinstance(event, Token) else ():
            assert view.kept is not None
            yield KeptLogits.of(view.kept.values[:size], size, view.kept.seed)
