"""`CompileProcess`: a child process that compiles grammars within limits of time and memory."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from processors.child import OUT_OF_MEMORY, Child, ChildDied, ChildLate
from processors.constraint import Constraint
from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.compile.messages import Reply, Setup

__all__ = ["CompileProcess", "TimeLimit"]

_START_SECONDS = 300.0  # to start the process and import its back end, which is no compile time


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Seconds that one grammar may take to compile: the smaller of `limit` and `left`."""

    limit: float
    left: float

    @property
    def seconds(self) -> float:
        """Seconds that the compile may take."""
        return min(self.limit, self.left)

    def __str__(self) -> str:
        is_part = self.left < 0.95 * self.limit
        return f"the time limit of {self.limit:g} s" + f", of which it had {self.left:.2g}" * is_part


class CompileProcess:
    """A process that compiles constraints one at a time, and ends at the first constraint over a limit."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._is_ready = False
        self._child = Child("processors.grammar.compile.worker")

    def compile(self, constraint: Constraint, limit: TimeLimit, *, twice: bool = False) -> Reply:
        """Compile a constraint. GrammarTimeout if out of time, GrammarError if the process dies; both end it.

        The limit counts from when the process has started. `twice`: the caller compiles the grammar again, so
        half of the time is left for this compile.
        """
        if not self._is_ready:
            self._answer(self._setup, _START_SECONDS, "start")
            self._is_ready = True
        purpose = f"compile this {constraint.kind} within {limit}"
        return self._answer(constraint, limit.seconds / (1 + twice), purpose)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._child.is_alive

    def close(self) -> None:
        """Kill the process."""
        self._child.close()

    def _answer(self, question: Setup | Constraint, timeout: float, purpose: str) -> Reply:
        try:
            reply: Reply = self._child.ask(question, timeout)
        except ChildLate as error:
            raise GrammarTimeout(f"{self._setup.backend} did not {purpose}.") from error
        except ChildDied as error:
            raise GrammarError(self._death_message(purpose, error.code)) from error
        if reply.error:
            raise GrammarError(reply.error)
        return reply

    def _death_message(self, purpose: str, code: int) -> str:
        memory = f"the memory limit of {self._setup.memory >> 20} MiB"
        if code == OUT_OF_MEMORY:
            return f"{self._setup.backend} could not {purpose} and {memory}."
        died = f" ({signal.Signals(-code).name})" if code < 0 else ""
        return f"{self._setup.backend} could not {purpose}, {memory} and the depth of its stack{died}."
