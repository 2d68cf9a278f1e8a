"""Options of stages whose value is written in a form of its own."""

import pytest

from gencli.config.run_options import option
from gencli.errors import UsageError


def test_a_value_is_read_from_its_text_or_refused(gencli):
    for key, given, value in [
        ("length_decay", "30:1.05", (30, 1.05)),
        ("dry_breaker", ["\\n", "###"], ("\n", "###")),
        ("dry_breaker", ["none"], ()),
        (
            "sequence_bias",
            [" of the=-2", "42=1.5", "a=b=inf"],
            ((" of the", -2.0), (42, 1.5), ("a=b", float("inf"))),
        ),
    ]:
        assert option(key).value(given) == value, key

    for given in ["30", "30:", ":1.05", "-3:1.05", "x:1", "3:x"]:
        with pytest.raises(UsageError, match="not of the form START:FACTOR"):
            option("length_decay").value(given)

    result = gencli("run", "--dry-multiplier", "1", "--dry-breaker", "none", "--show-chain")
    assert (result.code, "breakers=[]" in result.out) == (0, True), result.err
