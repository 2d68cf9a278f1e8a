"""--guidance and --contrast on the command line, in batches and in chats."""

import json

TINY = ("run", "--model", "tiny", "--dtype", "float32", "--chat", "--seed", "2", "--max-tokens", "16")


HAPPY, SAD = "Tell a story about a happy dog.", "Tell a story about a sad dog."


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


def test_what_does_not_go_together_is_refused(run, gencli):
    for options, said in [
        (("--guidance", "-1"), "--guidance is -1, but has to be a number >= 0"),
        (("--guidance", "inf"), "--guidance is inf, but has to be a number >= 0 and <= 1e+06."),
        (("--negative", "x"), "--negative is given, but there is no guidance"),
        (("--negative", "", "--guidance", "2"), "negative prompt is empty"),
        (("--guidance", "2", "--contrast", "fake"), "--guidance and --contrast cannot be used together"),
        (("--contrast-alpha", "0.2"), "--contrast-alpha is given, but there is no contrast"),
        (("--contrast-beta", "2"), "--contrast-beta is given, but there is no contrast"),
        (("--contrast", ""), "--contrast is empty"),
        (("--dola", "low", "--guidance", "2"), "--dola and --guidance cannot be used together"),
        (("--dola", "middle"), "'middle' is neither low, high nor layers such as 2,4,6"),
        (("--dola", "low"), "gives no logits of its layers"),
    ]:
        found = run("abc", *options)
        assert found.code == 2, options
        assert said in found.err, options

    found = gencli("run", "abc", "--model", "tiny", "--contrast", "fake")
    assert found.code == 5
    assert "fake cannot be the amateur of tiny: their vocabularies differ. Token 0 is" in found.err


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
