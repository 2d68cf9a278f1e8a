"""Tensor-parallel processes (--tp) with a rank above 0: they hold a shard and print nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gencli.batch.batch_plan import run_variables
from gencli.cli.terminal.render import silence
from gencli.config.layers import gather
from gencli.config.options.run import OPTIONS
from gencli.models.backend import rank
from gencli.runtime.machine import quiet_libraries

__all__ = ["follow_leader"]


def follow_leader(given: Mapping[str, Any]) -> int | None:
    """Run as a follower of --tp until the leader ends and return the exit code 0.

    Return None immediately in the process of rank 0, and without --tp. The leader (rank 0) reads the input,
    writes the result and reports errors.
    """
    if rank() == 0:
        return None
    keys = {entry.key for entry in OPTIONS if entry.section in ("Model", "Presets")} | {"plugin"}
    own = {
        key: value for key, value in given.items() if key in keys and (key, value) != ("max_batch", "auto")
    }
    settings = gather(own, run_variables(os.environ))
    if settings["tp"] is None:  # torchrun also starts independent runs
        return None
    silence()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the leader ends the run
    with quiet_libraries():
        from gencli.models.other_runners import follow
        from gencli.runtime.model_loading import load
        from gencli.runtime.wiring import model_choice

        # The leader may use guidance. Companion lanes that are not used take no memory.
        follow(load(replace(model_choice(settings), companions=True)).runner)
    return 0
