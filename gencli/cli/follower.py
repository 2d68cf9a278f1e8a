"""What the second and later processes of torchrun do: hold a part of the model, and say nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gencli.batch.plan import run_variables
from gencli.cli.terminal.render import silence
from gencli.config.layers import gather
from gencli.config.options.run import OPTIONS
from gencli.models.spread import rank
from gencli.runtime.quiet import quiet_libraries

__all__ = ["followed"]


def followed(given: Mapping[str, Any]) -> int | None:
    """Follow the first process of --tp until it ends; the exit code. None in a process that does not follow.

    The first one reads and writes, and says what is wrong.
    """
    if rank() == 0:
        return None
    keys = {entry.key for entry in OPTIONS if entry.section in ("Model", "Presets")} | {"plugin"}
    own = {
        key: value for key, value in given.items() if key in keys and (key, value) != ("max_batch", "auto")
    }
    settings = gather(own, run_variables(os.environ))
    if settings["tp"] is None:  # torchrun may start runs that know nothing of each other
        return None
    silence()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first one ends in order
    with quiet_libraries():
        from gencli.models.parallel import follow
        from gencli.runtime.models import load
        from gencli.runtime.wiring import model_choice

        # The leader may guide; lanes that are not fed take no memory.
        follow(load(replace(model_choice(settings), companions=True)).runner)
    return 0
