"""A side of a comparison: a whole chain, a preset or a profile, and what it shares with the other."""

import pytest

from gencli.config.layers import gather_side, refuse_differences
from gencli.errors import ConfigError, UsageError

FAKE = {"model": "fake", "seed": "1"}


def test_a_text_is_a_chain_a_preset_or_a_profile(here):
    for text, chain in [
        ("top_k=40 | top_p=0.9", "top_k=40 | top_p=0.9"),
        ("top_p=0.9 | top_k=40", "top_p=0.9 | top_k=40"),
        (" ", ""),
        ("creative", "presence=0.3 | temperature=1.2 | min_p=0.05"),
        ("preset:creative", "presence=0.3 | temperature=1.2 | min_p=0.05"),
        ("mine.yaml", "top_k=3"),
        ("preset:./mine.yaml", "top_k=3"),
        ("compat:hf", 'top_k:k=50,ties="keep"'),
    ]:
        here("mine.yaml", "top_k: 3")
        assert str(gather_side(text, FAKE, {}).job.chain) == chain, text


def test_a_whole_chain_has_nothing_of_other_layers(here):
    here("home/gencli/defaults.yaml", "temperature: 0.3\nmax_tokens: 7\nstages:\n  dry: 0.8\n")
    side = gather_side("top_k=5", FAKE, {"GENCLI_TOP_P": "0.5", "GENCLI_STOP": "x"})
    assert str(side.job.chain) == "top_k=5"
    assert (side.job.limits.max_tokens, side.job.stops.strings) == (7, ("x",))
    (notice,) = side.notices
    assert notice == (
        "'top_k=5' is the whole chain, without dry (home/gencli/defaults.yaml:4), "
        "temperature (home/gencli/defaults.yaml:1), GENCLI_TOP_P."
    )


def test_a_preset_of_a_side_yields_to_flags_and_what_has_no_part_is_said(here):
    here("mine.yaml", "max_tokens: 5\nstop: [a]\nsampler: multinomial\n")
    job = gather_side("mine.yaml", {**FAKE, "max_tokens": "9"}, {}).job
    assert (job.limits.max_tokens, job.stops.strings, job.method) == (9, ("a",), "multinomial")

    here("mine.yaml", "n: 2\nlogprobs: 3\ndraft: ngram\nretries: 2\njson: true\n")
    side = gather_side("mine.yaml", FAKE, {})
    assert side.notices == (
        "A comparison does not use n (mine.yaml:1), logprobs (mine.yaml:2), retries (mine.yaml:4), "
        "draft (mine.yaml:3).",
    )
    assert (side.job.n, side.job.logprobs, side.job.drafting.drafter) == (1, None, "none")


def test_sides_that_cannot_be_are_refused(here):
    for text, error in [
        ("nothing", ConfigError), ("top_k", ConfigError), ("compat:none", UsageError),
        ("preset:", ConfigError),
    ]:  # fmt: skip
        with pytest.raises(error):
            gather_side(text, FAKE, {})

    for a, b in [
        ("seed: 1", "seed: 2"), ("guidance: 2", "{}"), ("chat: true", "{}"),
        ("max_batch: 2", "max_batch: 3"),
    ]:  # fmt: skip
        here("a.yaml", a)
        here("b.yaml", b)
        sides = [gather_side(f"{name}.yaml", {"model": "fake"}, {}).settings for name in "ab"]
        refuse_differences(sides[0], sides[0])
        with pytest.raises(UsageError, match="for A and .* for B"):
            refuse_differences(*sides)
