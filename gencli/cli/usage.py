"""How a command is used: its declaration (`Page`), its help as plain text, and the message, hint and exit
code of an exception.
"""

from __future__ import annotations

import itertools
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from gencli import errors
from gencli.config.option import SECTIONS, Option
from gencli.config.option_names import COMMAND_NAMES, meant_command, meant_option, with_flags
from gencli.config.result_formats import FORMATS, RECORDS, WHOLE, format_of
from gencli.config.run_options import OPTIONS
from gencli.errors import GencliError, UsageError
from processors import errors as processors_errors
from processors.errors import ProcessorsError, did_you_mean


@dataclass(frozen=True, slots=True)
class Page:
    """A command's declaration. `usage` begins the help; `argument` is the arguments' metavar, "" for none.

    Completion offers `words` for the first argument. For the second it calls the function in `after` for that
    word, which returns whole words for the beginning of a word. The short help shows the options with the
    keys `everyday`, by default the command's own ones, and the command lines `examples`.
    """

    usage: str
    options: tuple[Option, ...]
    argument: str = ""
    words: tuple[str, ...] = ()
    after: Mapping[str, Callable[[str], list[str]]] = field(default_factory=dict)
    everyday: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The words that call the command, as in `gencli config show`."""
        words = self.usage.partition("\n")[0].split()[1:]
        return " ".join(itertools.takewhile(lambda word: word.isalpha(), words))

    @property
    def own(self) -> tuple[Option, ...]:
        """The options that a run does not have, if there are others too."""
        of_run = {id(entry) for entry in OPTIONS}  # to compare their fields takes seconds
        others = tuple(entry for entry in self.options if id(entry) not in of_run)
        return others if len(others) < len(self.options) else ()


RUN = Page(
    """\
Usage: gencli run [OPTIONS] [PROMPT]...

Generate text from a prompt. Several prompts give several texts. Piped text is
the prompt if none is given; otherwise it is appended to the prompt, or replaces
{stdin} in it. The prompt - is the piped text alone:
    cat notes.txt | gencli run "Summarise this:"
""",
    OPTIONS,
    "PROMPT",
    everyday=tuple(
        "model chat raw system preset temperature top_p top_k min_p repetition_penalty seed max_tokens stop "
        "json_schema output".split()
    ),
    examples=(
        'gencli run "Once upon a time" --top-p 0.9 --seed 7',
        'gencli run -m model.gguf --chat "What is the capital of France?"',
        'gencli run --json-schema "name, age int" "Nora is a 41 year old pilot."',
    ),
)


def values_of(
    options: Iterable[Option], flags: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the value of each option by key. Raises UsageError for a bad value.

    `environ`: variables, which set those that are options of a run.
    """
    variables: Mapping[str, Any] = {}
    if environ:
        from gencli.config.settings import environment_layer

        variables = environment_layer(environ).values

    def value(entry: Option) -> Any:
        if entry.key in flags:
            return entry.value(flags[entry.key], entry.flag)
        return variables.get(entry.key, entry.default) if entry in OPTIONS else entry.default

    return {entry.key: value(entry) for entry in options}


def with_format(flags: Mapping[str, Any], *more: str) -> Mapping[str, Any]:
    """Return the options with the format of the output's suffix if none is given; `more`: own formats."""
    suffix = PurePath(flags.get("output") or "").suffix.lower().removeprefix(".")
    form = next((form.name for form in FORMATS.values() if suffix in form.suffixes), suffix)
    return {**flags, "format": form} if form in (*RECORDS, *more) and "format" not in flags else flags


def read_subcommand(
    command: str, options: Mapping[str, Sequence[str]], arguments: Sequence[str], flags: Iterable[str]
) -> tuple[str, list[str]]:
    """Return the subcommand, which is the first argument, and the arguments after it.

    `options`: option keys of each subcommand, besides --debug. Raises UsageError for an unknown subcommand,
    and for a given option that it does not accept.
    """
    word, *names = arguments or [""]
    if word not in options:
        raise unknown_word(command, word, [*options])
    for key in flags:
        if key not in (*options[word], "debug"):
            flag = key.replace("_", "-")
            raise UsageError(f"{command} {word} does not take --{flag}.", hint="Leave it out.")
    return word, names


FORMAT = Option(("--format",), Literal[WHOLE], "Form of the result.", "Output", "text")
DEBUG = Option(("--debug",), bool, "Show the traceback of an error.", "Output", False)
FORMAT_AND_DEBUG = (FORMAT, DEBUG)


def in_format(text: str, record: Any, values: Mapping[str, Any]) -> str:
    """Return a result in the format of the command's options: its text, or its record."""
    return text if (form := format_of(values)).is_text else form.encode(record)


_COLUMN = 34
_NO_BREAK = "\xa0"  # a space at which lines are not wrapped


def command_help(width: int | None = None, *, page: Page = RUN, topic: str | None = None) -> str:
    """Return the help of a command, wrapped at `width` columns (by default the terminal's, at most 110).

    `topic`: only one group of the options. Raises UsageError for an unknown one.
    """
    width = width or min(shutil.get_terminal_size((80, 24)).columns, 110)
    groups = _groups(page)
    if topic is not None:
        names = {name.lower().split()[0]: name for name in groups}
        if topic.lower() not in names:
            message = f"The help of {page.name} has no group {topic!r}."
            raise UsageError(message, hint=f"It has {', '.join(names)}.")
        groups = {names[topic.lower()]: groups[names[topic.lower()]]}
    parts = [page.usage] if topic is None else []
    for name, entries in groups.items():
        rows = ((entry, describe_option(entry, space=_NO_BREAK, beside=page.options)) for entry in entries)
        parts.append(f"{name}:\n" + "".join(_row(signature(entry), text, width) for entry, text in rows))
    if topic is None:
        shown = [("-h", "Print one screen of help and exit."), ("--help", "Print this help and exit.")]
        if len(groups) > 1:
            topics = ", ".join(name.lower().split()[0] for name in groups)
            shown.append(("--help TOPIC", f"Print one group of the options: {topics}."))
        parts.append("Help:\n" + "".join(_row(*row, width) for row in shown))
    return "\n".join(parts)


def short_help(width: int | None = None, *, page: Page = RUN) -> str:
    """Return one screen: what the command is for, its everyday options, examples, how to see the rest."""
    width = width or min(shutil.get_terminal_size((80, 24)).columns, 110)
    by_key = {entry.key: entry for entry in page.options}
    everyday = [by_key[key] for key in page.everyday] or list(page.own or page.options)[:15]
    parts = [page.usage, "Options:\n"]
    for entry in everyday:  # with the beginning of its sentence, if that is one by itself
        text = with_flags(entry.help, page.options)
        end = re.search(r"(?<=[^.]\.) |(?<=.{24}); |(?<=.{24}): ", text)
        parts[-1] += _row(signature(entry), text[: end.start()].rstrip(".") + "." if end else text, width)
    if page.examples:
        parts.append("Examples:\n" + "".join(f"  {line}\n" for line in page.examples))
    num_others = len(page.options) - len(everyday)
    groups = ", ".join(name.lower().split()[0] for name in _groups(page))
    others = f"All options; {num_others} more." if num_others > 0 else "The same with all sentences."
    more = [("--help", others)]
    if num_others > 0:
        more.append(("--help TOPIC", f"One group: {groups}."))
    parts.append("More:\n" + "".join(_row(*row, width) for row in more))
    return "\n".join(parts)


def _groups(page: Page) -> dict[str, list[Option]]:
    # By heading: first those that only this command has.
    own_ids = {id(entry) for entry in page.own}
    groups = {f"{page.name.rpartition(' ')[2].capitalize()}": list(page.own)}
    others = [entry for entry in page.options if id(entry) not in own_ids]
    groups |= {section: [entry for entry in others if entry.section == section] for section in SECTIONS}
    return {name: entries for name, entries in groups.items() if entries}


def describe_option(entry: Option, *, space: str = " ", beside: Iterable[Option] = ()) -> str:
    """Return the option's sentence with its bounds and default; `space` replaces the spaces in these.

    `beside`: the options of the command, whose keys in the sentence become flags.
    """
    notes = [str(entry.bounds)] if str(entry.bounds) and not entry.read else []
    if entry.many:
        notes.append("repeatable")
    elif entry.default not in (None, ()) and entry.type is not bool:
        notes.append(f"default: {entry.default:g}" if entry.type is float else f"default: {entry.default}")
    return with_flags(entry.help, beside) + (
        f" ({'; '.join(note.replace(' ', space) for note in notes)})" if notes else ""
    )


def signature(entry: Option) -> str:
    """Return the option's names and metavar, the short name first: `-t, --temperature NUMBER`."""
    names = ", ".join(sorted(entry.names, key=len))
    metavar = entry.metavar or "|".join(entry.choices)
    if not metavar:
        metavar = {bool: "", int: "N", float: "NUMBER"}[entry.type]
    return f"{names} {metavar}".strip()


def _row(names: str, text: str, width: int) -> str:
    lines = textwrap.wrap(text, max(20, width - _COLUMN), break_long_words=False, break_on_hyphens=False)
    head = f"  {names}"
    lines = [line.replace(_NO_BREAK, " ") for line in lines]
    if len(head) > _COLUMN - 2:
        lines.insert(0, "")
    return "".join(f"{'' if i else head:<{_COLUMN}}{line}".rstrip() + "\n" for i, line in enumerate(lines))


_DEBUG = "--debug shows the traceback."


def explain(error: BaseException, arguments: Sequence[str] = ()) -> GencliError:
    """Return the error as a GencliError; `arguments`: the command line."""
    if isinstance(error, UsageError) and not error.hint:
        flags = {entry.key: entry.flag for entry in OPTIONS}
        for word in arguments:  # a long name after one dash is read as a short option and its value
            match = re.fullmatch("-([a-z][a-z-]+)(=.*)?", word, re.DOTALL)
            if match and (meant := meant_option(match[1], flags)):
                return UsageError(str(error), hint=f"{word} is read as {word[:2]} {word[2:]}. {meant}")
    if isinstance(error, GencliError):
        return error
    if isinstance(error, processors_errors.StageFailure):
        return errors.PluginError(str(error), hint="gencli stages check PLUGIN shows the smallest case.")
    if isinstance(error, processors_errors.RowError):
        return errors.GenerationError(str(error))
    if isinstance(error, processors_errors.GrammarError):
        return errors.ConfigError(str(error))
    if isinstance(error, ProcessorsError):
        is_far = isinstance(error, processors_errors.UnknownStage) and not error.is_near
        return UsageError(str(error), hint="The stage of a plug-in needs --plugin FILE." if is_far else "")
    if hasattr(error, "format_message"):  # typer's own exceptions, whose classes are not exported
        return _usage(error, arguments)
    if fault := errors.DeviceError.of(error):
        return fault
    if processors_errors.is_out_of_memory(error):
        return errors.GenerationError(
            "The memory is full.", hint="Lower --max-batch, or take a smaller --dtype."
        )
    if errors.is_panic(error):
        return GencliError(f"The Rust code of a library panicked: {error}.", hint=_DEBUG)
    return GencliError(
        f"Unexpected {type(error).__name__}: {error}", hint=f"This is a fault of gencli; {_DEBUG}"
    )


def _usage(error: BaseException, arguments: Sequence[str]) -> UsageError:
    command = getattr(getattr(error, "ctx", None), "command_path", None) or "gencli"
    name = str(getattr(error, "option_name", ""))
    if type(error).__name__ != "NoSuchOption":
        message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        group = getattr(getattr(error, "ctx", None), "command", None)
        words = sorted(getattr(group, "commands", ()))
        unknown = re.match(r"No such command '(.*?)'", message)
        if words and (unknown or message.startswith("Missing command")):
            return unknown_word(command, unknown[1] if unknown else "", words)
        return UsageError(message, hint=f"See {command} --help.")
    if not re.fullmatch(r"--?\w[\w-]*", name):
        return UsageError(
            f"There is no option {name!r}.", hint="Put -- before a prompt that begins with a dash."
        )
    if len(name) == 2:  # a long name after one dash is read letter by letter
        name = next((word for word in arguments if word.startswith(name)), name).partition("=")[0]
    parameters = getattr(getattr(getattr(error, "ctx", None), "command", None), "params", ())
    names = [flag for parameter in parameters for flag in (*parameter.opts, *parameter.secondary_opts)]
    keys = {entry.flag: entry.key for entry in OPTIONS}
    flags = {
        keys.get(flag, flag.lstrip("-").replace("-", "_")): flag
        for flag in names
        if flag.startswith("-") and flag != "-h"
    }
    is_of_run = name not in flags.values() and any(name == entry.flag for entry in OPTIONS)
    hint = f"It is an option of gencli run, not of {command}." if is_of_run else meant_option(name, flags)
    return UsageError(f"There is no option {name}.", hint=hint or f"See {command} --help.")


def unknown_word(command: str, word: str, words: Sequence[str]) -> UsageError:
    """Return the error of a command that expects one of several words."""
    listed = ", ".join(words)
    if not word:
        return UsageError(f"{command} needs one of: {listed}.", hint=f"See {command} --help.")
    hint = did_you_mean([repr(name) for name in meant_command(word, words, COMMAND_NAMES)])
    return UsageError(f"{command} takes {listed}, not {word!r}.", hint=hint or f"See {command} --help.")
