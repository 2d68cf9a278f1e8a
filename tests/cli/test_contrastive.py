"""--contrastive-alpha on the command line: the text, refusals, layers, batches."""

PROMPT = "the cat bade each big deaf chief a day"


SEARCH = ("--contrastive-alpha", 0.6)


def test_the_text_is_written_as_it_is_chosen_and_recorded(run):
    text = run(PROMPT, *SEARCH, "--max-tokens", 12, "--stream")
    record = run(PROMPT, *SEARCH, "--max-tokens", 12, "--format", "json").json
    assert text.out.rstrip("\n") == record["text"].rstrip("\n")
    assert "cannot be streamed" not in text.err
    assert (record["sampler"], record["candidates"], record["score"]) == ("contrastive", None, None)
    assert record["search"] == {"contrastive_alpha": 0.6, "contrastive_k": 4}


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
