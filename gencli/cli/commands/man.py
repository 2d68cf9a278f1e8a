"""`gencli man`: manual pages in roff, generated from the same declarations as the help."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gencli import __version__
from gencli.cli.app import COMMANDS, EXIT_CODES, make_app
from gencli.cli.render import Sink, say
from gencli.cli.usage import DEBUG, Page, describe_option, signature, unknown_word, values_of
from gencli.config.option import SECTIONS, Option
from gencli.errors import UsageError
from gencli.files import replaced

PAGE = Page(
    """\
Usage: gencli man [COMMAND]... [OPTIONS]

Show the manual page of gencli, or of a command, as in gencli man config show. On
a terminal man(1) shows it, elsewhere its source is printed. With --output all
pages are written into a folder, for man's own search path:
    gencli man --output ~/.local/share/man/man1
""",
    (
        Option(("--output", "-o"), str, "Write all pages into this folder.", "Output", metavar="DIR"),
        DEBUG,
    ),
    "[COMMAND]...",
    tuple(COMMANDS),
)
_SUMMARY = "generate text with a local language model"
_VARIABLES = (
    "Every option has an environment variable: GENCLI_TOP_K is --top-k. Values also come from presets "
    "(--preset) and from your own defaults (gencli config edit); flags are the strongest."
)
_ESCAPES = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)


@dataclass(frozen=True, slots=True)
class _Manual:
    """The contents of a page. `words` names the command; `options` are (signature, sentence) by section."""

    words: str
    summary: str
    usage: Sequence[str]
    text: str
    options: Mapping[str, Sequence[tuple[str, str]]]


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Show a page, or write all pages into a folder, and return the exit code.

    Raises UsageError for an unknown command, and for a folder that is not writable.
    """
    folder = values_of(PAGE.options, flags)["output"]
    if folder is not None and arguments:
        raise UsageError("--output writes all pages.", hint="Leave the command out.")
    sources = pages()
    if folder is not None:
        return _write(sources, Path(folder))
    words = " ".join(arguments)
    name = f"gencli {words}".strip().replace(" ", "-")
    if name not in sources:
        first = words.partition(" ")[0]
        subcommands = [page[7:].replace("-", " ") for page in sources if page.startswith(f"gencli-{first}-")]
        raise unknown_word("gencli man", words, subcommands or list(COMMANDS))
    sink = Sink()
    if not (sink.is_terminal and _show(sources[name])):
        sink.write(sources[name])
    return 0


def pages() -> dict[str, str]:
    """Return the roff source of every page by name, such as gencli-config-show."""
    manuals = list(_manuals())
    names = [_name(manual) for manual in manuals]
    return {_name(manual): _page(manual, names) for manual in manuals}


def _write(sources: Mapping[str, str], folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in sources.items():
            with replaced(folder / f"{name}.1") as file:
                file.write(text.encode())
    except OSError as error:
        raise UsageError(f"--output {folder}: cannot be written: {error.strerror}.") from error
    say(f"{len(sources)} pages are in {folder}.")
    return 0


def _show(text: str) -> bool:
    """Show a page with man(1). Return whether that succeeded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.1"
        path.write_text(text, encoding="ascii")
        try:
            return subprocess.call(["man", "-l", str(path)], stderr=subprocess.DEVNULL) == 0
        except OSError:
            return False


def _manuals() -> Iterator[_Manual]:
    from typer.main import get_command

    table = [*COMMANDS.items()]
    usage = ["gencli COMMAND [OPTIONS] ..."]
    general = [("--version", "Print the version and exit."), ("-h, --help", "Print the help and exit.")]
    text = "Generate text with a local language model through a visible chain of logits processors."
    yield _Manual("", _SUMMARY, usage, text, {"Commands": table, "Options": general})
    app: Any = get_command(make_app(COMMANDS))
    for name, registered in app.commands.items():
        yield from _command_manuals(name, registered, COMMANDS[name])


def _command_manuals(words: str, registered: Any, summary: str) -> Iterator[_Manual]:
    summary = summary[0].lower() + summary[1:].rstrip(".")
    inner = getattr(registered, "commands", None)
    if inner:
        table = [(name, subcommand.short_help or subcommand.help) for name, subcommand in inner.items()]
        yield _Manual(words, summary, [f"gencli {words} COMMAND [OPTIONS] ..."], "", {"Commands": table})
        for (name, subcommand), (_, sentence) in zip(inner.items(), table, strict=True):
            yield from _command_manuals(f"{words} {name}", subcommand, sentence)
    elif page := getattr(registered.callback, "page", None):
        head, _, text = page.usage.partition("\n\n")
        usage = [line.removeprefix("Usage:").strip() for line in head.splitlines()]
        options: dict[str, list[tuple[str, str]]] = {}
        for option in sorted(page.options, key=lambda entry: SECTIONS.index(entry.section)):
            options.setdefault(option.section, []).append((signature(option), describe_option(option)))
        yield _Manual(words, summary, usage, text, options)
    else:
        yield _parameter_manual(words, summary, registered)


def _parameter_manual(words: str, summary: str, registered: Any) -> _Manual:
    """Return the page of a command that has no `Page`, from the parameters of its click command."""
    options, arguments = [], []
    for parameter in registered.params:
        if not parameter.opts[0].startswith("-"):
            more = "..." if parameter.nargs == -1 else ""
            arguments.append((parameter.metavar or parameter.name.upper()) + more)
        else:
            flags = ", ".join(sorted([*parameter.opts, *parameter.secondary_opts], key=len))
            options.append((f"{flags} {parameter.metavar or ''}".strip(), parameter.help or ""))
    usage = " ".join([f"gencli {words}", *(["[OPTIONS]"] if options else []), *arguments])
    # Beside a short help the help is the description; \b is click's sign not to fill the next lines.
    text = registered.help.replace("\b\n", "") if registered.short_help else ""
    return _Manual(words, summary, [usage], text, {"Options": options} if options else {})


def _name(manual: _Manual) -> str:
    return f"gencli {manual.words}".strip().replace(" ", "-")


def _page(manual: _Manual, names: Sequence[str]) -> str:
    """Return the roff source of a page; `names` are the names of all pages."""
    name = _name(manual)
    title = _escaped(name.upper())
    lines = [f'.TH {title} 1 "" "gencli {_escaped(__version__)}" "gencli manual"']
    lines += [".SH NAME", rf"{_escaped(name)} \- {_escaped(manual.summary)}", ".SH SYNOPSIS", ".nf"]
    lines += [*map(_line, manual.usage), ".fi"]
    if manual.text:
        lines += [".SH DESCRIPTION", *_paragraphs(manual.text)]
    plain = ("Commands", "Options")
    if set(manual.options) - set(plain):
        lines.append(".SH OPTIONS")
    for section, rows in manual.options.items():
        lines.append(f".SH {section.upper()}" if section in plain else f'.SS "{_escaped(section)}"')
        for flag, text in rows:
            lines += [".TP", rf"\fB{_escaped(flag)}\fR", _line(text)]
    if manual.words in ("", "run", "batch", "chat", "serve"):
        lines += [".SH ENVIRONMENT", _line(_VARIABLES)]
    lines += [".SH EXIT STATUS", _line(EXIT_CODES.replace("\n", " "))]
    # Pages of commands of which one directly contains the other.
    near = [other for other in names if name == other.rpartition("-")[0] or other == name.rpartition("-")[0]]
    if near:
        lines += [".SH SEE ALSO", ",\n".join(rf"\fB{_escaped(other)}\fR(1)" for other in near)]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the roff lines of a text; lines with an indent of 4 are examples and are not filled."""
    is_example = False
    for line in text.splitlines():
        if line.startswith("    ") != is_example:
            is_example = not is_example
            yield ".PP\n.RS 4\n.nf" if is_example else ".fi\n.RE"
        yield _line(line.strip()) if line.strip() else ".PP"
    if is_example:
        yield ".fi\n.RE"


def _line(text: str) -> str:
    # A leading full stop would begin a roff request, so \\& comes before it.
    escaped = _escaped(text)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def _escaped(text: str) -> str:
    escaped = text.translate(_ESCAPES)
    return "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
