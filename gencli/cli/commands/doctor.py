"""`gencli doctor`: findings about the installation and the machine, with advice. It never fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.terminal.records import FORMAT, record_text
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.tables import table
from gencli.config.options.flags import with_flags
from gencli.config.options.option import Option
from gencli.runtime.machine import quiet_libraries

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli doctor [OPTIONS]

Look at versions, devices, caches, plug-ins and the terminal, with a line of
advice for each finding. The exit code is 0 whatever is found.
""",
    (
        FORMAT,
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
)  # fmt: skip


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the findings and return 0."""
    from gencli.runtime.machine import examine

    values = values_of(PAGE, given)
    with quiet_libraries(is_on=not values["debug"]):
        findings = list(examine())
    if values["format"] != "text":
        rows = [
            {
                "area": one.area,
                "name": one.name,
                "value": one.value,
                "is_good": one.is_good,
                "advice": one.advice,
            }
            for one in findings
        ]
        text = record_text(rows, values["format"])
    else:
        marks = {True: "ok", False: "!"}
        text = table(
            (marks[one.is_good], one.area, one.name, one.value, with_flags(one.advice)) for one in findings
        )
    Sink().write(text)
    return 0
