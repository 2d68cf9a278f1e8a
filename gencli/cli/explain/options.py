"""The options of `gencli explain`: its own, and those of a run for a prompt, kept logits, and lessons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gencli.cli.explain.modes import MODES
from gencli.config.options.option import Option
from gencli.config.options.run import OPTIONS
from processors.conversion import Bounds
from processors.params import MOST

__all__ = ["EXPLAIN_OPTIONS", "OWN", "RUN_KEYS", "options_of_run"]

_FOREIGN = frozenset(
    "stream stats log show_chain show_prompt trace keep_logits token_ids parsed color".split()
)
OWN: tuple[Option, ...] = (
    Option(("--at",), int, "Show the way of this token through the chain; the first one is 0.", "Output",
           bounds=Bounds(ge=0, le=MOST)),
    Option(("--decided-by",), str, "Show the tokens that this stage decided, one after the other.", "Output",
           metavar="STAGE"),
    Option(("--why",), str, "Show why the token with this text was not chosen, at each place or with `at` at "
           "one; #12 is the token with id 12.", "Output", metavar="TEXT"),
    Option(("--replay",), bool, "Run the chain of the given options on the logits that the trace keeps.",
           "Output", False),
    Option(("--run",), str, "Only the text of this request: the number of the prompt, or the row's id.",
           "Output", metavar="ID", key_name="request"),
    Option(("--sample",), int, "Only this sample of each prompt; the first one is 1.", "Output",
           bounds=Bounds(ge=1, le=MOST)),
    Option(("--format",), Literal["text", "jsonl"], "text, or jsonl: the records that would be shown.",
           "Output", "text"),
    Option(("--html",), str, "Write a page to click through: one file that needs no network.", "Output",
           metavar="FILE"),
    *MODES,
    Option(("--teach",), bool, "Show what the chain of the given options does to twelve words; no model is "
           "needed.", "Output", False),
    Option(("--logits-file",), str, "Explain the rows of logits of this .npy or .safetensors file, [V] or "
           "[T, V]; with `model` its tokenizer names the tokens.", "Prompt", metavar="FILE"),
    Option(("--tensor",), str, "With --logits-file: the tensor of a .safetensors file that has several.",
           "Prompt", metavar="NAME"),
    Option(("--tokens",), str, "With --logits-file: the ids that were chosen, separated by commas; by "
           "default the chain chooses.", "Prompt", metavar="IDS"),
)  # fmt: skip


def options_of_run(own: Iterable[Option], *left_out: str) -> tuple[Option, ...]:
    """Return the options of a run for a command with options of its own, which explains tokens itself.

    Leaves out searches, whose tokens have no explanations, and options for output that only a run writes.
    """
    foreign = {*_FOREIGN, *left_out, *(entry.key for entry in own)}
    return tuple(entry for entry in OPTIONS if entry.key not in foreign and entry.section != "Search")


_OF_RUN = options_of_run(OWN, "output")
RUN_KEYS = frozenset(entry.key for entry in _OF_RUN)
EXPLAIN_OPTIONS: tuple[Option, ...] = (*OWN, *_OF_RUN)
