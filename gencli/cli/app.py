"""The entry point: help and version, dispatch to one command, errors and exit codes.

Only the module of the command that runs is imported, so `gencli --help` takes little more time than Python's
own start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gencli import __version__
from gencli.cli.render import OutputClosed, Sink, prepare, say, say_error, say_interrupted
from gencli.errors import UsageError

if TYPE_CHECKING:
    import typer

COMMANDS = {
    "run": "Generate text from a prompt.",
    "batch": "Generate a text for each row of files.",
    "chat": "Talk with a model in turns.",
    "serve": "Answer OpenAI's API over HTTP.",
    "score": "Score texts: log-probabilities and perplexities.",
    "explain": "Show what each stage did to the tokens of a text.",
    "fork": "Continue a traced text in other ways, as a tree.",
    "sweep": "Measure the texts of a grid of settings.",
    "compare": "Run two chains on the same texts, and show where they part.",
    "log": "List, show and rerun the runs that --log stored.",
    "man": "Show the manual pages, or write them.",
    "models": "List, show, fetch, remove and name models.",
    "quantize": "Write a model with weights of 8 or 4 bits.",
    "schema": "Show which keywords of a JSON schema are enforced.",
    "tokenize": "Show the tokens of a text.",
    "detect": "Tell whether a text has a watermark.",
    "doctor": "Check this installation and machine.",
    "completion": "Print the shell's completion script.",
    "stages": "List, show and check the stages of the chain.",
    "config": "Show, check, compare and write presets.",
    "bench": "Measure whole runs, beside transformers and llama.cpp.",
}

# Commands that are defined beside another one, in its module or one of several.
_BESIDE = {
    "chat": "commands.run",
    "score": "commands.run",
    "fork": "commands.log",
    "sweep": "commands.compare",
    "quantize": "commands.tools",
    "schema": "commands.tools",
    "detect": "commands.tools",
    "doctor": "commands.tools",
    "stages": "commands.config",
    "tokenize": "commands.config",
    "completion": "option_parser",
}

_LIST = "\n".join(f"  {name:<22}{text}" for name, text in COMMANDS.items())
EXIT_CODES = """\
0 done, 2 usage, 3 configuration or schema, 4 plug-in, 5 model, 6 generation
failed or not valid, 7 some prompts failed, 130 interrupted."""
HELP = f"""\
Usage: gencli COMMAND [OPTIONS] ...

Generate text with a local language model through a visible chain of logits processors.

Commands:
{_LIST}

Options:
  --version             Print the version and exit.
  -h, --help            Print this help and exit.

Every command has its own help: gencli run --help
Exit codes: {EXIT_CODES}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. An error is printed on stderr; --debug raises it."""
    arguments = sys.argv[1:] if arguments is None else arguments
    prepare()
    try:
        return explained(lambda: _dispatch(arguments), arguments)
    except OutputClosed:
        return 0  # the reader closed the pipe, as `| head` does
    except KeyboardInterrupt:
        say_interrupted()
        return 130


def _dispatch(arguments: Sequence[str]) -> int:
    first = arguments[0] if arguments else ""
    if "_GENCLI_COMPLETE" in os.environ or first in ("--install-completion", "--show-completion"):
        return _complete(arguments)
    if not first:
        say(HELP)
        return 2
    if first in ("-h", "--help"):
        Sink().write(HELP)
    elif first == "--version":
        Sink().write(f"gencli {__version__}\n")
    elif first in COMMANDS:
        try:  # where it was deleted, imports and relative paths would fail
            os.getcwd()
        except OSError:
            message = "The working directory does not exist any more."
            raise UsageError(message, hint="cd to another one.") from None
        return _run(_click_command(first), _with_help_topic(arguments))
    else:
        raise _unknown(first)
    return 0


def _with_help_topic(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments with `--help TOPIC` as one option: typer has none whose value may be left out."""
    from gencli.cli.option_parser import HELP_TOPIC

    command = _click_command(arguments[0]).commands[arguments[0]]
    index = arguments.index("--help") if "--help" in arguments else len(arguments)
    topic = arguments[index + 1 : index + 2]
    if not topic or topic[0].startswith("-") or hasattr(command, "commands"):
        return arguments
    return [*arguments[:index], f"{HELP_TOPIC}={topic[0]}", *arguments[index + 2 :]]


def _complete(arguments: Sequence[str]) -> int:
    """Return the exit code of a shell completion request, or of --install/show-completion."""
    try:
        instruction = os.environ.get("_GENCLI_COMPLETE", "")
        if instruction.startswith("complete_"):
            from gencli.cli.option_parser import complete

            return complete(instruction, _click_command, COMMANDS)
        return _run(_click_command(*COMMANDS), arguments)
    except SystemExit as end:  # typer exits after printing or installing the script
        return end.code if isinstance(end.code, int) else int(bool(end.code))


def explained(call: Callable[[], int], arguments: Sequence[str]) -> int:
    """Call `call`; print an exception as message and hint, and return its exit code."""
    try:
        return call()
    except (OutputClosed, KeyboardInterrupt):
        raise
    except BaseException as error:  # includes SystemExit of a library and panics of Rust code
        if "--debug" in arguments:
            raise
        from gencli.cli.usage import explain

        fault = explain(error, arguments)
        end = "" if fault.message.endswith("?") else "."
        say_error(f"{fault.message.rstrip('.')}{end}", fault.hint)
        return fault.exit_code


def _unknown(word: str) -> UsageError:
    from gencli.config.option_names import COMMAND_NAMES, meant_command
    from processors.errors import did_you_mean

    kind = "option" if word.startswith("-") else "command"
    names = [*COMMANDS, "--help", "--version", "--install-completion", "--show-completion"]
    close = did_you_mean([repr(name) for name in meant_command(word, names, COMMAND_NAMES)])
    run = f"A prompt needs the command run: gencli run {word!r}"
    fallback = run if kind == "command" else "See gencli --help."
    return UsageError(f"There is no {kind} {word!r}.", hint=close or fallback)


def command_of(name: str) -> Any:
    """Return the function of a command, or its typer group of subcommands; its module alone is imported.

    A module has the function `command`, which makes a group, or `run` and its PAGE. The names of a command
    beside another one have its name too, as in stages_command, run_chat and CHAT_PAGE.
    """
    module = import_module(f"gencli.cli.{_BESIDE.get(name, f'commands.{name}')}")
    group, run, page = "command", "run", "PAGE"
    if name in _BESIDE:
        group, run, page = f"{name}_command", f"run_{name}", f"{name.upper()}_PAGE"
    if hasattr(module, group):
        return getattr(module, group)()
    from gencli.cli.option_parser import make_command

    return make_command(getattr(module, run), getattr(module, page))


def make_app(names: Iterable[str]) -> typer.Typer:
    """Return a typer application with the named commands. Only their modules are imported."""
    import typer

    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback(help="Generate text with a local language model.")(lambda: None)
    for name in names:
        command = command_of(name)
        if isinstance(command, typer.Typer):  # a group with subcommands
            app.add_typer(command, name=name, help=COMMANDS[name])
        else:
            app.command(name, help=COMMANDS[name], add_help_option=False)(command)
    return app


@cache  # building the parameters of all commands takes as long as a short run
def _click_command(*names: str) -> Any:
    from typer import Abort
    from typer.main import get_command

    command: Any = get_command(make_app(names))
    invoke = command.invoke

    def interruptible(context: Any) -> Any:
        try:
            return invoke(context)
        except KeyboardInterrupt:  # newer typers end with 130 and say nothing; all let Abort pass
            raise Abort from None

    command.invoke = interruptible
    return command


def _run(command: Any, arguments: Sequence[str]) -> int:
    from typer import Abort

    try:
        result = command.main(list(arguments), prog_name="gencli", standalone_mode=False)
    except Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0
