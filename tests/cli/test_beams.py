"""Searches and choices among samples on the command line: results, refusals, notices, batches."""

import json

import pytest

PROMPT = "the cat bade each big deaf chief a day"


def test_the_text_is_the_best_and_n_gives_more(run):
    one = run(PROMPT, "--beams", 3, "--max-tokens", 12)
    record = run(PROMPT, "--beams", 3, "-n", 2, "--max-tokens", 12, "--format", "json").json
    assert one.out.rstrip("\n") == record["texts"][0].rstrip("\n")
    assert record["sampler"] == "beams"
    assert record["score"] == [entry["score"] for entry in record["candidates"][:2]]
    assert len(record["candidates"]) == 3

    greedy = run(PROMPT, "-t", 0, "--max-tokens", 20, "--repetition-penalty", 1.3)
    assert run(PROMPT, "--beams", 1, "--max-tokens", 20, "--repetition-penalty", 1.3).out == greedy.out


def test_the_best_of_samples_are_those_that_n_draws_by_their_mean_logprob(run):
    flags = (PROMPT, "--seed", 4, "--max-tokens", 12, "--format", "json")
    drawn = run(*flags, "-n", 5).json
    best = run(*flags, "--best-of", 5, "-n", 2).json
    assert sorted(entry["text"] for entry in best["candidates"]) == sorted(drawn["texts"])
    scores = [entry["score"] for entry in best["candidates"]]
    assert scores == sorted(scores, reverse=True)
    assert best["texts"] == [entry["text"] for entry in best["candidates"][:2]]
    for entry in best["candidates"]:
        assert entry["score"] == pytest.approx(entry["logprob"] / entry["completion_tokens"], rel=1e-3)
        assert all(entry[key] == float(f"{entry[key]:.4g}") for key in ("score", "logprob"))


def test_what_does_not_go_together_is_refused_by_name(run, gencli):
    for flags, names in [
        (("--beams", 3, "-t", 0.5, "--top-k", 4), ("--beams", "--temperature", "--top-k")),
        (("--beams", 3, "-t", 0), ("--beams", "--temperature")),
        (("--beams", 3, "--sampler", "greedy"), ("--beams", "--sampler")),
        (("--beams", 3, "--stage", "top_k=4"), ("--beams", "--stage")),
        (("--beams", 3, "--chain", "adjust,temperature"), ("--beams", "--chain")),
        (("--beams", 3, "--best-of", 4), ("--beams", "--best-of")),
        (("--beams", 3, "--retries", 1, "--regex", "a+"), ("--beams", "--retries")),
        (("--beams", 3, "--draft", "ngram"), ("--beams", "--draft")),
        (("--beams", 3, "--guidance", 2), ("--beams", "--guidance")),
        (("--beams", 3, "--contrast", "tiny-draft"), ("--beams", "--contrast")),
        (("--beams", 3, "-n", 4), ("--beams", "-n")),
        (("--beams", 3, "--max-batch", 2), ("--beams", "--max-batch")),
        (("--beams", 9), ("--beams", "--max-batch")),
        (("--length-penalty", 2), ("--length-penalty", "--beams")),
        (("--early-stopping",), ("--early-stopping", "--beams")),
        (("--best-of", 3, "-t", 0), ("--best-of", "--temperature")),
        (("--best-of", 3, "--sampler", "greedy"), ("--best-of", "--sampler")),
        (("--best-of", 3, "--retries", 1, "--regex", "a+"), ("--best-of", "--retries")),
        (("--best-of", 3, "-n", 4), ("--best-of", "-n")),
    ]:
        result = run(PROMPT, *flags)
        assert result.code == 2, flags
        assert all(name in result.err for name in names), flags

    result = gencli("chat", "--model", "fake", "--beams", 2)
    assert result.code == 2
    assert "--beams" in result.err


def test_a_search_replaces_what_a_weaker_layer_says_of_the_draw(run, tmp_path):
    preset = tmp_path / "draw.yaml"
    preset.write_text("temperature: 0.7\ntop_p: 0.9\nsampler: multinomial\n")
    plain = run(PROMPT, "--beams", 3, "--max-tokens", 12)
    result = run(PROMPT, "--beams", 3, "--max-tokens", 12, "--preset", preset)
    assert result.out == plain.out
    assert "A beam search draws nothing, so these stages change nothing: top_p" in result.err


def test_rows_search_draw_and_choose_in_one_batch(gencli, tmp_path):
    rows = [
        {"prompt": PROMPT},
        {"prompt": PROMPT, "beams": 3, "length_penalty": 2.0},
        {"prompt": PROMPT, "best_of": 4, "n": 2},
        {"prompt": PROMPT, "beams": 3, "temperature": 0.5},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--model", "fake", "--allow-ids", "97,98,99,100,257", "--seed", 1, "--max-tokens", 9)
    found = gencli("batch", source, *flags).lines
    assert [row["sampler"] for row in found[:3]] == ["gumbel", "beams", "gumbel"]
    assert [len(row["candidates"] or ()) for row in found[:3]] == [0, 3, 4]
    assert len(found[2]["texts"]) == 2
    assert "temperature would have no effect" in found[3]["error"]["message"]
    alone = gencli("run", PROMPT, *flags, "--beams", 3, "--length-penalty", 2, "--format", "json").json
    assert (found[1]["text"], found[1]["candidates"]) == (alone["text"], alone["candidates"])
