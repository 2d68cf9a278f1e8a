"""Replaces option keys by flags in messages of the library, for the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gencli.config.options.option import Option

__all__ = ["with_flags"]

_KEY = re.compile(r"`([a-z]\w*)`( =(?= ))?")


def with_flags(text: str, options: Iterable[Option] = ()) -> str:
    """Return a message of the library as a terminal shows it: option keys in backticks become flags.

    Below gencli.cli a message names an option by its key in backticks. The key is that of the option
    tables, and also the keyword of `LLM` and `SamplingParams` and the key in presets and in rows of a
    batch. A value follows an equals sign between spaces:

        `max_batch`            --max-batch
        `vars`                 --var
        `verify` = rejection   --verify rejection

    Only keys of the tables of `gencli run`, `batch`, `score` and `serve`, and of `options`, are replaced;
    other text in backticks is returned as it is. Errors, notices and advice for a person are shown through
    this function. Records (JSON, YAML, the results of a batch) keep the keys.
    """
    flags = _flags() | {entry.key: entry.flag for entry in options}
    return _KEY.sub(lambda match: flags.get(match[1], match[0]), text)


@cache
def _flags() -> dict[str, str]:
    """Return the flag of each option by its key."""
    from gencli.batch.batch_options import OWN
    from gencli.config.options.run import OPTIONS
    from gencli.scoring.text_scores import SCORE_OWN
    from gencli.server.serve_options import OWN as OF_SERVER

    return {entry.key: entry.flag for entry in (*SCORE_OWN, *OPTIONS, *OF_SERVER, *OWN)}
