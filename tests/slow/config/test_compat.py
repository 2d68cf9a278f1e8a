"""Compat profiles: below the user's values, in the order of their system, each saying what it cannot do."""

from tests.cli.conftest import FAKE
from tests.config.test_compat import ON, settings_of, values_of
from tests.helpers.profiles import PROFILES


def test_a_profile_has_its_systems_values_in_its_order_and_runs(gencli):
    for name in PROFILES:
        found = values_of(settings_of(name))
        assert (list(found), found) == (list(ON[name]), ON[name]), name

    for name in PROFILES:
        flags = ("-t", "0.9", "--max-tokens", "8", "--seed", "3", "-q", "x")
        result = gencli("run", *FAKE, "--compat", name, *flags)
        assert (result.code, result.err) == (0, ""), name
        assert result.out.strip(), name
