"""What needs no model: help, version, commands, errors of the command line."""

import pytest


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
