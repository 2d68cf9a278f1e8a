"""`gencli quantize`: writes a copy of a model with weights of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.terminal.records import FORMAT, record_text
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.stderr import Stderr
from gencli.config.options.option import Option
from gencli.errors import UsageError
from gencli.runtime.machine import quiet_libraries
from gencli.units import size

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli quantize MODEL OUT [OPTIONS]

Write a copy of a model with weights of 8 or 4 bits to the new folder OUT, which
runs on a CPU in gencli's own decoder. It gives the same texts as --quantize and
loads faster.
""",
    (
        Option(("--bits",), Literal["8", "4"], "Bits of a weight.", "Model", "8"),
        FORMAT,
        Option(("--quiet", "-q"), bool, "Show no progress.", "Output", False),
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "MODEL OUT",
)  # fmt: skip


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Write the model, print its old and new size, and return the exit code."""
    values = values_of(PAGE, given)
    if len(arguments) != 2:
        raise UsageError("quantize takes a model and a new folder.", hint="gencli quantize MODEL OUT")
    name, target = arguments[0], Path(arguments[1]).expanduser()
    if name == "fake":
        raise UsageError("The fake model is a table that is made when it is used; it has no files.")
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.models.files.model_files import Quantize
        from gencli.models.quantized_copy import quantize_model

        with Stderr(is_quiet=values["quiet"]).loading(name, "Quantizing") as on_bytes:
            quantize = cast(Quantize, f"int{values['bits']}")
            written = quantize_model(name, target, quantize, on_bytes=on_bytes)
    record = {
        "model": name,
        "folder": str(written.folder),
        "bits": int(values["bits"]),
        "bytes_before": written.before,
        "bytes": written.after,
    }
    text = f"{written.folder}: {size(written.before)} of weights became {size(written.after)}.\n"
    Sink().write(text if values["format"] == "text" else record_text(record, values["format"]))
    return 0
