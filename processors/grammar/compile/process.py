"""`CompileProcess`: a child process that compiles grammars within limits of time and memory."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from processors.child import OUT_OF_MEMORY, Child, ChildDied, ChildLate
from processors.constraint import Constraint
from processors.errors import GrammarError, GrammarTimeout
from processors.grammar.compile.messages import Reply, Setup

__all__ = ["CompileProcess", "Patience"]

_GRACE = 1.5  # seconds over the limit allowed for starting the process and sending its result


@dataclass(frozen=True, slots=True)
class Patience:
    """Time budget of one grammar, counted from `begin`: the smaller of `limit` and `left`, in seconds."""

    limit: float
    left: float
    begin: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Seconds that the compile may take."""
        return min(self.limit, self.left)

    @property
    def rest(self) -> float:
        """Seconds until the process is killed."""
        return max(0.0, self.seconds + _GRACE - (time.perf_counter() - self.begin))

    def __str__(self) -> str:
        is_part = self.left < 0.95 * self.limit
        return f"the time limit of {self.limit:g} s" + f", of which it had {self.left:.2g}" * is_part


class CompileProcess:
    """A process that compiles constraints one at a time, and ends at the first constraint over a limit."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._is_ready = False
        self._child = Child("processors.grammar.compile.worker")

    def compile(self, constraint: Constraint, patience: Patience, *, twice: bool = False) -> Reply:
        """Compile a constraint. GrammarTimeout if out of time, GrammarError if the process dies; both end it.

        Starting the process may take 1.5 seconds more. `twice`: the caller compiles the grammar again, so
        half of the time is left for this compile.
        """
        purpose = f"compile this {constraint.kind} within {patience}"
        if not self._is_ready:
            self._answer(self._setup, patience.rest, purpose)
            self._is_ready = True
        most = min(patience.seconds, patience.rest) / (1 + twice)
        return self._answer(constraint, most, purpose)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._child.is_alive

    def kill(self) -> None:
        """Kill the process from another thread; the thread that waits in `compile` gets a GrammarError."""
        self._child.kill()

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
