"""All shapes probed, all recorded audits made again, and documents drawn under all patterns."""

from tests.slow.structured.test_audit import BACKENDS, PATTERNS, check_audits, check_drawn, check_shapes


def test_the_installed_back_end_is_as_recorded_in_every_shape():
    check_shapes(1)


def test_the_audit_of_each_schema_is_the_recorded_one():
    check_audits(1)


def test_what_is_drawn_under_any_pattern_is_valid():
    check_drawn([(backend, pattern) for backend in BACKENDS for pattern in PATTERNS])
