"""`gencli score`, and log-probabilities of run, chat and batch on the command line."""


def test_the_convention_is_printed_with_the_numbers(gencli):
    strided = ["--convention", "strided", "--window", "8", "--stride", "4"]
    done = gencli("score", *strided, stdin=b"Once upon a time\n")
    assert "convention strided (window 8, stride 4)" in done.out
    assert "bits per byte" in done.out
    tokens = gencli("score", "--tokens", "1", stdin=b"Once\n")
    assert (tokens.code, "tokens" in tokens.err) == (2, True)


def test_a_prompt_alone_is_scored_and_a_chat_shows_scores(gencli):
    done = gencli("run", "--prompt-logprobs", "0", "--max-tokens", "0", "--format", "json", "Once upon")
    record = done.json
    assert (record["text"], record["completion_tokens"], record["prompt_logprobs"][0]) == ("", 0, None)
    assert record["prompt_logprobs"][-1]["rank"] == 1

    done = gencli("chat", "-t", "0", "--max-tokens", "2", "--logprobs", "0", stdin=b"Hello\n")
    assert "processed" in done.err


def test_what_does_not_go_together_is_refused_by_name(gencli):
    for flags, said in [
        (["--logprobs", "1", "-q"], ["--quiet", "--logprobs"]),
        (["--max-tokens", "0"], ["--max-tokens", "--prompt-logprobs"]),
        (["--max-tokens", "0", "--prompt-logprobs", "1", "-n", "2"], ["--max-tokens", "-n"]),
        (["--logprobs", "1", "--finish-open", "--json"], ["--logprobs", "--finish-open"]),
    ]:
        done = gencli("run", *flags, "Once")
        assert done.code == 2, flags
        assert all(name in done.err for name in said), flags
