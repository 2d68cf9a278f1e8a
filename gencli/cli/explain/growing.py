"""The part of `gencli fork` that needs torch: loads the model of a tree's run, and grows children."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from gencli.cli.commands.generate import Ready, prepare
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.stderr import Stderr
from gencli.config.job import Job
from gencli.config.settings import Settings
from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import Request
from gencli.errors import GenerationError, UsageError
from gencli.explain.forks import Cut, Forks
from gencli.explain.tree import Node, Tree
from gencli.results.run_results import Results

__all__ = ["Grower", "Growth", "open_grower"]


@dataclass(frozen=True, slots=True)
class Growth:
    """New children in the order of their ids, and the results from which they are made."""

    nodes: tuple[Node, ...]
    results: Results


@dataclass(frozen=True, slots=True)
class Grower:
    """A loaded model that grows children of a tree's texts."""

    ready: Ready
    forks: Forks
    handler: Interrupts
    voice: Stderr

    def grow(
        self,
        tree: Tree,
        cut: Cut,
        count: int,
        *,
        seed: int | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Growth:
        """Return `count` children at a cut. An interrupt ends them with their texts so far.

        Raises UsageError or ProcessorsError for a cut at which no output is possible.
        """
        requests = self.forks.requests(tree, cut, count, seed)
        results = Results([""] * count, 1)
        for event in self._events(requests):
            results.add(event)
            if on_event is not None:
                on_event(event)
        nodes = []
        for request, row in zip(requests, results.rows, strict=True):
            end = row.outcomes[0]
            if (node := self.forks.node(tree, cut, request, row)) is not None:
                nodes.append(node)
            elif isinstance(end, Finish) and end.reason != "interrupted":
                why = f"The text ended before its first new token: `{end.matched or end.reason}`."
                row.outcomes[0] = Error(request.id, 0, "GenerationError", why, end.text)
        return Growth(tuple(nodes), results)

    def ranked(self, tree: Tree, cut: Cut, rank: int) -> int:
        """Return the id with rank `rank` at a cut, under the model without stages."""
        size = self.forks.tokenizer.vocab_size
        if rank > size:
            raise UsageError(f"No token has rank {rank}: the model has {size} tokens.")
        found: int | None = None
        for event in self._events([self.forks.ranking(tree, cut, rank)]):
            if isinstance(event, Token) and event.logprobs:
                found = event.logprobs[-1].top[-1].id
            elif isinstance(event, Error):
                raise GenerationError(event.message)
        if found is None:  # interrupted
            raise KeyboardInterrupt
        return found

    def _events(self, requests: Sequence[Request]) -> Iterator[Event]:
        engine = self.ready.engine
        for one in requests:
            engine.submit(one)
        while engine.notices:
            self.voice.notice(engine.notices.pop(0))
        self.handler.on_first = engine.interrupt
        try:
            yield from engine.run()
        finally:
            self.handler.on_first = None


@contextmanager
def open_grower(
    job: Job, prompt: str, settings: Settings, count: int, *, voice: Stderr, handler: Interrupts
) -> Iterator[Grower]:
    """Load the model of a run for `count` children at once."""
    with ExitStack() as stack:
        ready = prepare(job, count, settings, voice, stack)
        yield Grower(ready, Forks.of(ready.job, prompt, ready.loaded.tokenizer), handler, voice)
