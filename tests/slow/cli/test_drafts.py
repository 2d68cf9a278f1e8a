"""--draft on the command line: the same text, what is said of it, and what is refused."""

from tests.cli.conftest import ROOT
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


def test_what_a_policy_does_to_the_text_is_said_once(run):
    for policy in ["rejection", "lossy-typical", "lossy-threshold"]:
        found = run(PROMPT, "second", "-n", "2", *SHORT, "--draft", "ngram", "--verify", policy)
        assert found.code == 0, policy
        assert found.err.count(f"With --verify {policy} the number of drafts decides the text") == 1, policy
        assert found.err.count("the text is another one") == (policy != "rejection"), policy
        assert "Drafts (ngram)" in found.err, policy
        again = run(
            PROMPT, "second", "-n", "2", *SHORT, "--draft", "ngram", "--verify", policy, "--max-batch", "1"
        )
        assert again.out == found.out, policy


def test_a_chat_drafts_and_the_documentation_names_every_drafter(gencli):
    options = ("chat", "--model", "tiny", "--dtype", "float32", "--seed", "1", "--max-tokens", "20")
    turns = b"Tell me a story.\nAnother one.\n"
    plain = gencli(*options, stdin=turns)
    drafted = gencli(*options, "--draft", "tiny-draft", "--draft-tokens", "4", stdin=turns)
    assert plain.out
    assert drafted.out == plain.out

    text = (ROOT / "docs" / "speculation.md").read_text()
    assert all(f"`{name}`" in text for name in ("ngram", "suffix", "auto", "early-exit"))
