"""gencli: generate text with a local language model through a visible chain of logits processors.

    from gencli import LLM, SamplingParams

Names are imported on first use: the command line starts without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gencli.version import __version__
from processors.errors import exports

if TYPE_CHECKING:
    from gencli.config.job import SamplingParams
    from gencli.core.events import Error, Event, Finish, Reading, Token
    from gencli.core.request import Request
    from gencli.errors import GencliError, GencliWarning
    from gencli.runtime.completion import Completion, Sample
    from gencli.runtime.llm import LLM

__all__ = [
    "LLM",
    "Completion",
    "Error",
    "Event",
    "Finish",
    "GencliError",
    "GencliWarning",
    "Reading",
    "Request",
    "Sample",
    "SamplingParams",
    "Token",
    "__version__",
]

__getattr__ = exports(
    __name__,
    {
        "config.job": ("SamplingParams",),
        "core.events": ("Error", "Event", "Finish", "Reading", "Token"),
        "core.request": ("Request",),
        "errors": ("GencliError", "GencliWarning"),
        "runtime.completion": ("Completion", "Sample"),
        "runtime.llm": ("LLM",),
    },
)
