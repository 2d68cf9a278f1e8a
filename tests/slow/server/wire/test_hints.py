"""The rows of docs/reference/server.md's table of fields that have an effect; two of them compile a grammar."""

from tests.server.wire.test_hints import check_rows


def test_fields_with_an_effect_are_accepted(fake):
    check_rows(fake, "effect", 200)
