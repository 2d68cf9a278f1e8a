"""A notice says what a person has to know, once."""

from gencli.cli.usage import command_help
from tests.cli.conftest import ROOT


def test_a_document_or_text_that_is_cut_is_told_once(run):
    result = run("--regex", "a{90}", "--max-tokens", "5", "hi")
    assert result.code == 6
    assert result.err.count("--max-tokens") == 1
    assert "The shortest output that was found has 90 tokens, but there is room for 5" in result.err

    result = run("--regex", "a{90}", "--max-tokens", "5", "--partial", "hi")
    assert result.err.count("--max-tokens") == 1
    assert "Cut at --max-tokens 5" in run("--max-tokens", "5", "hi").err


def test_samples_that_are_all_the_same_or_as_long_as_the_grammar_are_told_once(run):
    result = run("--choice", "ab", "--choice", "cd", "--min-tokens", "9", "-n", "4", "hi")
    assert result.err.count("The grammar allows nothing more") == 1
    assert "min_tokens did not make 4 of 4 texts longer" in result.err

    same = ("--top-k", "1", "--max-tokens", "4", "-n", "3")
    assert run(*same, "hi").err.count("All 3 samples are the same text.") == 1
    assert "All 3 samples are the same text for 2 of 2 prompts." in run(*same, "hi", "ho").err
    assert "the same text" not in run("--max-tokens", "9", "-n", "3", "hi").err


def test_no_page_shows_a_default_in_python():
    pages = [(ROOT / "docs" / "reference" / name).read_text() for name in ("options.md", "stages.md")]
    for text in (command_help(), *pages):
        assert not [word for word in ("default: ()", "(,)", "None)", "True)", "False)") if word in text]
