"""`scripts/contract.py`: what it masks, which differences are declared, and that it asks every command."""

import io
from contextlib import redirect_stdout

from gencli.cli.app import main
from scripts.contract import helps
from tests.cli.test_render import commands


def test_every_command_is_in_the_help_part():
    def show(words):
        with redirect_stdout(io.StringIO()) as out:
            main(words)
        return out.getvalue()

    asked = {words for words, _ in helps(show)}
    assert asked >= {*commands()}
