"""How PyTorch's CPU threads wait for each other: spinning or asleep.

A matrix product ends when its last thread ends. On an idle machine, spinning threads are up to a fifth
faster. If other processes use the cores as well, spinning threads take time from the last thread and are many
times slower. The OpenMP library reads its setting when PyTorch is imported, so the choice is made before
that.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

__all__ = ["Wait", "is_shared", "set_wait"]

Wait = Literal["auto", "spin", "sleep"]
_POLICY = "OMP_WAIT_POLICY"
_PRESSURE = Path("/proc/pressure/cpu")
_MAX_STALLED = 10.0  # percent of the last ten seconds in which some task waited for a core


def set_wait(wait: Wait, environ: MutableMapping[str, str]) -> None:
    """Set how threads wait in this process. An existing value of OMP_WAIT_POLICY is kept.

    `spin` is the default of the library, which sleeps after a few milliseconds of spinning, so it costs
    nothing while a chat waits for its next turn.
    """
    if wait == "sleep" or (wait == "auto" and is_shared()):
        environ.setdefault(_POLICY, "PASSIVE")


def is_shared(pressure: Path = _PRESSURE) -> bool:
    """Return whether other processes compete for the cores of this machine.

    On Linux decided by how long tasks waited for a core (pressure stall information), elsewhere by the load
    of the last minute.
    """
    with suppress(OSError, ValueError, IndexError):
        some = pressure.read_text(encoding="ascii").split()
        return float(some[1].removeprefix("avg10=")) > _MAX_STALLED
    try:
        return os.getloadavg()[0] > (os.cpu_count() or 1)
    except (OSError, AttributeError):  # Windows has no load
        return False
