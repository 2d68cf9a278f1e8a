"""--guidance and --contrast on the command line, in batches and in chats."""

import json

from tests.cli.test_guidance import HAPPY, SAD, TINY


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
    found = gencli("chat", "--seed", "3", stdin=b"/set contrast tiny-draft")
    assert found.code == 2


SHORT = ("--seed", "1", "--max-tokens", "30")


def test_a_scale_of_one_is_no_guidance_and_of_zero_the_negative_prompt(run, gencli):
    assert run("abc", *SHORT, "--guidance", "1", "--negative", "x").out == run("abc", *SHORT).out
    assert run("abc", *SHORT, "--guidance", "9", "--negative", "x").out != run("abc", *SHORT).out

    found = gencli(*TINY, HAPPY, "--guidance", "0", "--negative", SAD)
    assert found.out == gencli(*TINY, SAD).out
    assert found.out != gencli(*TINY, HAPPY).out


def test_drafts_of_a_model_change_nothing(gencli):
    for options in [("--guidance", "2"), ("--contrast", "tiny-draft", "-n", "3")]:
        plain = gencli(*TINY, HAPPY, *options)
        drafted = gencli(*TINY, HAPPY, *options, "--draft", "tiny-draft", "--draft-tokens", "3")
        assert (drafted.code, drafted.out) == (0, plain.out), options
        assert plain.out != gencli(*TINY, HAPPY).out, options


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
        alone = gencli("run", "abc", "--model", "fake", *SHORT, "--format", "json", *flags)
        assert result["text"] == json.loads(alone.out)["text"]

    (tmp_path / "in.jsonl").write_text('{"prompt": "a", "contrast": "tiny"}\n{"prompt": "a"}\n')
    found = gencli("batch", tmp_path / "in.jsonl", "-o", tmp_path / "other.jsonl", "--model", "fake")
    assert found.code == 7
    assert "The amateur 'tiny' is not the one of this run" in (tmp_path / "other.jsonl").read_text()
