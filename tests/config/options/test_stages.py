"""Options of stages whose value is written in a form of its own."""

import pytest

from gencli.config.options.run import option
from gencli.errors import UsageError


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("length_decay", "30:1.05", (30, 1.05)),
        ("dry_breaker", ["\\n", "###"], ("\n", "###")),
        ("dry_breaker", ["none"], ()),
        (
            "sequence_bias",
            [" of the=-2", "42=1.5", "a=b=inf"],
            ((" of the", -2.0), (42, 1.5), ("a=b", float("inf"))),
        ),
    ],
)
def test_a_value_is_read_from_its_text(key, given, value):
    assert option(key).value(given) == value


@pytest.mark.parametrize("given", ["30", "30:", ":1.05", "-3:1.05", "x:1", "3:x"])
def test_a_decay_without_start_or_factor_is_refused(given):
    with pytest.raises(UsageError, match="not of the form START:FACTOR"):
        option("length_decay").value(given)


def test_no_breaker_at_all_is_written_none(gencli):
    result = gencli("run", "--dry-multiplier", "1", "--dry-breaker", "none", "--show-chain")
    assert (result.code, "breakers=[]" in result.out) == (0, True), result.err
