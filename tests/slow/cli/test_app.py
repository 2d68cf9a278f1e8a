"""What needs no model: help, version, commands, errors of the command line."""

from typer.main import get_command

from gencli import __version__
from gencli.cli.app import COMMANDS, make_app
from gencli.cli.usage import command_help
from gencli.config.run_options import OPTIONS


def test_help_lists_every_command_and_flag_that_typer_knows(gencli):
    group = get_command(make_app(COMMANDS))
    of_completion = ("--install-completion", "--show-completion")  # typer's, for which there is a command
    flags = [flag for parameter in group.params for flag in parameter.opts if flag not in of_completion]
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
    assert [flag for flag in flags if flag not in result.out] == ["--help-topic"]  # what --help TOPIC becomes

    short = gencli("run", "-h").out
    assert short != result.out
    assert 'gencli run "Once upon a time" --top-p 0.9 --seed 7\n' in short
    group = gencli("run", "--help", "drafts").out
    assert group.startswith("Drafts:\n")
    assert group in result.out
    refused = gencli("run", "--help", "dreams")
    assert (refused.code, "drafts" in refused.err) == (2, True)

    import runpy

    from tests.cli.conftest import ROOT

    script = runpy.run_path(str(ROOT / "scripts" / "config_docs.py"))
    assert (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8") == script[
        "commands_page"
    ]()
