"""--draft on the command line: the same text, what is said of it, and what is refused."""

from tests.cli.test_drafts import PROMPT, SHORT

TINY = ("run", "--model", "tiny", "--dtype", "float32", "--seed", "2", "--max-tokens", "24")


def test_drafts_change_nothing_on_stdout(run):
    for tokens in ["1", "4", "auto"]:
        for name in ["ngram", "suffix", "auto"]:
            plain = run(PROMPT, "second", "-n", "2", *SHORT)
            drafted = run(PROMPT, "second", "-n", "2", *SHORT, "--draft", name, "--draft-tokens", tokens)
            assert (drafted.code, drafted.out) == (plain.code, plain.out), (tokens, name)
            assert f"Drafts ({name})" in drafted.err, (tokens, name)


def test_a_model_drafts_for_another(gencli):
    for name in ["tiny-draft", "early-exit", "early-exit:5", "tiny"]:
        plain = gencli(*TINY, "Once upon a time")
        drafted = gencli(*TINY, "--draft", name, "--draft-tokens", "3", "Once upon a time")
        assert drafted.out == plain.out, name
        assert f"Drafts ({name}): " in drafted.err, name
        assert " tokens a forward, drafting " in drafted.err, name


def test_a_model_of_another_vocabulary_drafts_through_text(gencli):
    for tokens in ["3", "auto"]:
        plain = gencli(*TINY, "Once upon a time")
        drafted = gencli(*TINY, "--draft", "fake", "--draft-tokens", tokens, "Once upon a time")
        assert drafted.out == plain.out, tokens
        said = "fake has another vocabulary than tiny, and drafts through text: token 0 is '\\x00' to fake"
        assert drafted.err.count(f"Notice: {said}") == 1, tokens
        assert "Drafts (fake): " in drafted.err, tokens
