"""gencli run and gencli score: options, searches, guidance, drafts, log-probabilities."""

import csv
import io
import json

import pytest

from tests.cli.commands.test_run import FORTY, HAPPY, PROMPT, REPEATED, SAD, SEARCH, TINY
from tests.cli.conftest import ROOT


def test_streaming_is_said_to_wait(run):
    for flag in ("--beams", "--best-of"):
        assert f"With {flag} text cannot be streamed" in run(PROMPT, flag, 2, "--stream").err


def test_the_seed_changes_nothing_and_alpha_does(run):
    one, other = (run(PROMPT, *SEARCH, "--seed", seed, "--max-tokens", 12).out for seed in (1, 2))
    assert one == other
    assert one != run(PROMPT, "-t", 0, "--max-tokens", 12).out

    result = run(PROMPT, *SEARCH, "-t", 0, "--top-p", 0.5, "--max-tokens", 12)
    assert result.out == run(PROMPT, *SEARCH, "--max-tokens", 12).out
    assert "The temperature is 0, so these stages change nothing: top_p" in result.err


def test_a_search_replaces_what_a_weaker_layer_says_of_the_choice(run, tmp_path):
    preset = tmp_path / "draw.yaml"
    preset.write_text("sampler: multinomial\nbeams: 3\n")
    plain = run(PROMPT, *SEARCH, "--max-tokens", 12)
    result = run(PROMPT, *SEARCH, "--max-tokens", 12, "--preset", preset)
    assert (result.code, result.out) == (0, plain.out)
    preset.write_text("contrastive_alpha: 0.6\n")
    assert run(PROMPT, "--max-tokens", 12, "--preset", preset).out == plain.out
    beams = run(PROMPT, "--beams", 2, "--max-tokens", 12)
    assert run(PROMPT, "--beams", 2, "--max-tokens", 12, "--preset", preset).out == beams.out


def test_rows_of_a_batch_have_searches_of_their_own(gencli, tmp_path):
    alphas = (0, 0.3, 0.6, 0.9)
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(f"{json.dumps({'prompt': PROMPT, 'contrastive_alpha': one})}\n" for one in alphas)
    )
    flags = ("--model", "fake", "--max-tokens", 12, "-t", 0)
    found = gencli("batch", file, *flags, "--max-batch", 6).lines
    assert [row["sampler"] for row in found] == ["greedy", *["contrastive"] * 3]
    alone = ("run", PROMPT, *flags, "--format", "json", "--contrastive-alpha")
    assert [row["text"] for row in found] == [gencli(*alone, one).json["text"] for one in alphas]


def test_a_chat_can_be_guided_and_begins_with_its_amateur(gencli):
    lines = [HAPPY, "/set guidance 2.5", "And then?", "/set guidance default", "And then?"]
    options = ("--seed", "3", "--max-tokens", "16", "--dtype", "float32")
    found = gencli("chat", *options, stdin="\n".join(lines).encode())
    plain = gencli("chat", *options, stdin="\n".join(lines[::2]).encode())
    assert found.code == 0
    assert found.out != plain.out
    assert found.out.startswith(gencli(*TINY, "--seed", "3", HAPPY).out.strip())

    options = ("--seed", "3", "--max-tokens", "16", "--contrast", "tiny-draft")
    assert gencli("chat", *options, stdin=f"{HAPPY}\nMore.".encode()).code == 0
    gencli("chat", "--seed", "3", stdin=b"/set contrast tiny-draft").refused()


THIRTY = ("--seed", "1", "--max-tokens", "30")


def test_a_scale_of_one_is_no_guidance_and_of_zero_the_negative_prompt(run, gencli):
    assert run("abc", *THIRTY, "--guidance", "1", "--negative", "x").out == run("abc", *THIRTY).out
    assert run("abc", *THIRTY, "--guidance", "9", "--negative", "x").out != run("abc", *THIRTY).out

    found = gencli(*TINY, HAPPY, "--guidance", "0", "--negative", SAD)
    assert found.out == gencli(*TINY, SAD).out
    assert found.out != gencli(*TINY, HAPPY).out


def test_drafts_of_a_model_change_nothing(gencli):
    unguided = gencli(*TINY, HAPPY).out
    for options in [("--guidance", "2"), ("--contrast", "tiny-draft", "-n", "3")]:
        plain = gencli(*TINY, HAPPY, *options)
        drafted = gencli(*TINY, HAPPY, *options, "--draft", "tiny-draft", "--draft-tokens", "3")
        assert (drafted.code, drafted.out) == (0, plain.out), options
        assert plain.out != unguided, options


def test_dola_contrasts_layers_of_the_bundled_model(gencli):
    plain, found = gencli(*TINY, HAPPY), gencli(*TINY, HAPPY, "--dola", "1,2", "--contrast-alpha", "0.2")
    assert found.code == 0
    assert found.out != plain.out
    drafted = gencli(*TINY, HAPPY, "--dola", "1,2", "--contrast-alpha", "0.2", "--draft", "ngram")
    assert drafted.out == found.out


def test_rows_of_a_batch_have_guidance_of_their_own_but_no_amateur(gencli, tmp_path):
    own = [{}, {"guidance": 2.5, "negative": "x"}, {"guidance": 3}, {"guidance": 0, "negative": "y"}]
    rows = [{"prompt": "abc", "seed": 1, "max_tokens": 30, **options} for options in own]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert gencli("batch", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", "fake").code == 0
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for result, options in zip(results, own, strict=True):
        flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        alone = gencli("run", "abc", "--model", "fake", *THIRTY, "--format", "json", *flags)
        assert result["text"] == json.loads(alone.out)["text"]

    (tmp_path / "in.jsonl").write_text('{"prompt": "a", "contrast": "tiny"}\n{"prompt": "a"}\n')
    gencli("batch", tmp_path / "in.jsonl", "-o", tmp_path / "other.jsonl", "--model", "fake").refused(code=7)
    assert "The amateur 'tiny' is not the one of this run" in (tmp_path / "other.jsonl").read_text()


TINY_RUN = ("run", "--model", "tiny", "--dtype", "float32", "--seed", "2", "--max-tokens", "24")


def test_drafts_change_nothing_on_stdout(run):
    plain = run(REPEATED, "second", "-n", "2", *FORTY)
    for tokens in ["1", "4", "auto"]:
        for name in ["ngram", "suffix", "auto"]:
            drafted = run(REPEATED, "second", "-n", "2", *FORTY, "--draft", name, "--draft-tokens", tokens)
            assert (drafted.code, drafted.out) == (plain.code, plain.out), (tokens, name)
            assert f"Drafts ({name})" in drafted.err, (tokens, name)


def test_a_model_drafts_for_another(gencli):
    plain = gencli(*TINY_RUN, "Once upon a time")
    for name in ["tiny-draft", "early-exit", "early-exit:5", "tiny"]:
        drafted = gencli(*TINY_RUN, "--draft", name, "--draft-tokens", "3", "Once upon a time")
        assert drafted.out == plain.out, name
        assert f"Drafts ({name}): " in drafted.err, name
        assert " tokens a forward, drafting " in drafted.err, name


def test_a_model_of_another_vocabulary_drafts_through_text(gencli):
    plain = gencli(*TINY_RUN, "Once upon a time")
    for tokens in ["3", "auto"]:
        drafted = gencli(*TINY_RUN, "--draft", "fake", "--draft-tokens", tokens, "Once upon a time")
        assert drafted.out == plain.out, tokens
        said = "fake has another vocabulary than tiny, and drafts through text: token 0 is '\\x00' to fake"
        assert drafted.err.count(f"Notice: {said}") == 1, tokens
        assert "Drafts (fake): " in drafted.err, tokens


def test_what_a_policy_does_to_the_text_is_said_once(run):
    for policy in ["rejection", "lossy-typical", "lossy-threshold"]:
        found = run(REPEATED, "second", "-n", "2", *FORTY, "--draft", "ngram", "--verify", policy)
        assert found.code == 0, policy
        assert found.err.count(f"With --verify {policy} the number of drafts decides the text") == 1, policy
        assert found.err.count("the text is another one") == (policy != "rejection"), policy
        assert "Drafts (ngram)" in found.err, policy
        again = run(
            REPEATED, "second", "-n", "2", *FORTY, "--draft", "ngram", "--verify", policy, "--max-batch", "1"
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


def test_a_table_of_a_batch_has_a_column_of_them(gencli):
    given = b'{"prompt": "One", "logprobs": 0, "max_tokens": 2}\n{"prompt": "Two", "max_tokens": 2}\n'
    done = gencli("batch", "-q", "--seed", "1", "--format", "csv", stdin=given)
    one, two = csv.DictReader(io.StringIO(done.out))
    assert len(json.loads(one["logprobs"])) == 2
    assert two["logprobs"] == ""
    assert "logprobs" not in gencli("batch", "-q", "--seed", "1", "--format", "csv", stdin=b"One\n").out


ROWS = [
    {"text": "Once upon a time, a kind fox named Clover lived in a house."},
    {"id": "q", "context": "Brindle is", "choices": [" a town.", " Biscuit."]},
    {"context": "Once upon a", "continuation": " time"},
    {"nothing": 1},
]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_rows_are_scored_and_a_faulty_one_fails_alone(gencli, rows):
    done = gencli("score", "-q", "--format", "jsonl", "--tokens", "1", rows)
    text, choices, pair, faulty = map(json.loads, done.out.splitlines())
    assert done.code == 7
    assert text["scored"] == text["tokens"] == len(text["token_scores"])
    assert text["convention"] == {"name": "lm-eval", "window": 1024, "bos": True}
    assert [choices["id"], choices["best"]["sum"], len(choices["choices"])] == ["q", 0, 2]
    assert pair["greedy"] is True
    assert faulty["error"]["type"] == "UsageError"


def test_log_probabilities_of_a_run_go_to_stderr_or_into_the_record(gencli):
    plain = gencli("run", "-t", "0", "--max-tokens", "3", "Once upon")
    shown = gencli("run", "-t", "0", "--max-tokens", "3", "--logprobs", "2", "Once upon")
    asked = ["run", "-t", "0", "--max-tokens", "3", "--logprobs", "2"]
    record = gencli(*asked, "--format", "json", "Once upon").json
    assert shown.out == plain.out
    assert "best under the model" in shown.err
    assert [len(entry["top"]) for entry in record["logprobs"]] == [2, 2, 2]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in record["logprobs"])
