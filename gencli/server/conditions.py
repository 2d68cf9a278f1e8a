"""Access rules, limits and timeouts of the server, shared by all its models. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field

from gencli.server.limits import CallLimits
from gencli.server.security import Rules

__all__ = ["Conditions"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """Access rules, limits of a call, length of the queue, and timeouts in seconds.

    `max_queue`: samples of a model beyond those that run at once. `queue_timeout`: limit until the first
    token of a call. `shutdown_timeout`: limit for running calls at shutdown. `write_timeout`: limit for a
    client that reads nothing. `ping`: interval between comments that keep a stream open.
    """

    rules: Rules = field(default_factory=Rules)
    limits: CallLimits = field(default_factory=CallLimits)
    max_queue: int = 256
    queue_timeout: float = 120.0
    shutdown_timeout: float = 10.0
    write_timeout: float = 60.0
    ping: float = 15.0
    is_lenient: bool = False
