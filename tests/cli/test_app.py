"""What needs no model: help, version, commands, errors of the command line."""

import pytest
from typer.main import get_command

from gencli import __version__
from gencli.cli.app import COMMANDS, make_app
from gencli.cli.parser.help import command_help
from gencli.config.options.run import OPTIONS


def test_help_lists_every_command_and_flag_that_typer_knows(gencli):
    group = get_command(make_app(COMMANDS))
    flags = [flag for parameter in group.params for flag in parameter.opts]
    result = gencli("--help")
    assert result.code == 0
    assert [word for word in [*group.commands, *flags] if word not in result.out] == []
    assert gencli("-h").out == result.out

    for width in (80, 110):
        text = command_help(width)
        assert text.isascii()
        assert max(map(len, text.splitlines())) <= width

    assert gencli("--version").out == f"gencli {__version__}\n"

    assert [entry.flag for entry in OPTIONS if not entry.help.endswith(".")] == []


def test_help_of_run_lists_every_flag_that_typer_knows_as_docs_do(gencli):
    command = get_command(make_app(COMMANDS)).commands["run"]
    flags = [
        flag for parameter in command.params[1:] for flag in (*parameter.opts, *parameter.secondary_opts)
    ]
    result = gencli("run", "--help")
    assert result.code == 0
    assert [flag for flag in flags if flag not in result.out] == []
    assert gencli("run", "-h").out == result.out

    import runpy

    from tests.cli.conftest import ROOT

    script = runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == script["page"]()


def test_a_word_that_is_not_known_names_the_nearest(gencli):
    for arguments, said in [
        (["rnu"], "Did you mean 'run'?"),
        (["--versoin"], "Did you mean '--version'?"),
        (["Once upon a time"], "gencli run 'Once upon a time'"),
        (["run", "--temprature", "1", "x"], "Did you mean --temperature?"),
        (["run", "- item"], "Put -- before"),
        (["run", "--top-k"], "--top-k"),
    ]:
        result = gencli(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert result.err.startswith("Error: "), arguments
        assert said in result.err, arguments

    result = gencli()
    assert (result.code, result.out) == (2, "")
    assert "Usage: gencli" in result.err


def test_debug_shows_the_traceback_and_nothing_else_does(gencli):
    from gencli.errors import UsageError

    assert "Traceback" not in gencli("run", "--top-p", "7", "x").err
    with pytest.raises(UsageError):
        gencli("run", "--top-p", "7", "--debug", "x")
