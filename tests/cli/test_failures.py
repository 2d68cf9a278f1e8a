"""Errors that are no Exception: they end a command with a message and a code, a row with its record."""

from gencli.cli.usage import explain


def test_an_exit_or_a_panic_from_anywhere_has_a_message():
    panic = type("PanicException", (BaseException,), {})("no")
    assert "Rust" in explain(panic).message

    for ended in [SystemExit(3), SystemExit(), GeneratorExit()]:
        assert type(ended).__name__ in explain(ended).message, ended
