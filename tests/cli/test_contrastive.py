"""--contrastive-alpha on the command line: the text, refusals, layers, batches."""

import json

PROMPT = "the cat bade each big deaf chief a day"
SEARCH = ("--contrastive-alpha", 0.6)


def test_the_text_is_written_as_it_is_chosen_and_recorded(run):
    text = run(PROMPT, *SEARCH, "--max-tokens", 12, "--stream")
    record = run(PROMPT, *SEARCH, "--max-tokens", 12, "--format", "json").json
    assert text.out.rstrip("\n") == record["text"].rstrip("\n")
    assert "cannot be streamed" not in text.err
    assert (record["sampler"], record["candidates"], record["score"]) == ("contrastive", None, None)
    assert record["search"] == {"contrastive_alpha": 0.6, "contrastive_k": 4}


def test_the_seed_changes_nothing_and_alpha_does(run):
    one, other = (run(PROMPT, *SEARCH, "--seed", seed, "--max-tokens", 12).out for seed in (1, 2))
    assert one == other
    assert one != run(PROMPT, "-t", 0, "--max-tokens", 12).out

    result = run(PROMPT, *SEARCH, "-t", 0, "--top-p", 0.5, "--max-tokens", 12)
    assert result.out == run(PROMPT, *SEARCH, "--max-tokens", 12).out
    assert "The temperature is 0, so these stages change nothing: top_p" in result.err


def test_one_candidate_is_the_most_likely_token(run):
    for stages in [(), ("--repetition-penalty", 1.3), ("--ban", "e")]:
        found = run(PROMPT, *SEARCH, "--contrastive-k", 1, "--max-tokens", 12, *stages)
        assert found.out == run(PROMPT, "-t", 0, "--max-tokens", 12, *stages).out, stages


def test_what_does_not_go_together_is_refused_by_name(run, gencli):
    for flags, names in [
        ((*SEARCH, "--beams", 3), ("--contrastive-alpha", "--beams")),
        ((*SEARCH, "--best-of", 3), ("--contrastive-alpha", "--best-of")),
        ((*SEARCH, "-n", 3), ("--contrastive-alpha", "-n")),
        ((*SEARCH, "--retries", 1, "--regex", "a+"), ("--contrastive-alpha", "--retries")),
        ((*SEARCH, "--sampler", "multinomial"), ("--contrastive-alpha", "--sampler")),
        ((*SEARCH, "--draft", "ngram"), ("--contrastive-alpha", "--draft")),
        ((*SEARCH, "--guidance", 2), ("--contrastive-alpha", "--guidance")),
        ((*SEARCH, "--contrast", "tiny-draft"), ("--contrastive-alpha", "--contrast")),
        ((*SEARCH, "--dola", "low"), ("--contrastive-alpha", "--dola")),
        ((*SEARCH, "--trace", "t.jsonl"), ("--contrastive-alpha", "--trace")),
        ((*SEARCH, "--max-batch", 3), ("--contrastive-k", "--max-batch")),
        ((*SEARCH, "--contrastive-k", 9), ("--contrastive-k", "--max-batch")),
        (("--contrastive-k", 3), ("--contrastive-k", "--contrastive-alpha")),
        (("--contrastive-alpha", 1.5), ("--contrastive-alpha",)),
        (("--penalty-alpha", 0.6), ("--penalty-alpha", "--contrastive-alpha")),
    ]:
        result = run(PROMPT, *flags)
        assert result.code == 2, flags
        assert all(name in result.err for name in names), flags

    found = gencli("run", PROMPT, "--model", "tiny", "--backend", "transformers", *SEARCH)
    assert found.code == 2
    assert "gives no hidden states" in found.err


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
