"""Compat profiles: below the user's values, in the order of their system, each saying what it cannot do."""

import re

from gencli.config.preset_files import profile_file
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


def test_a_profile_says_what_it_is_what_it_was_checked_against_and_what_differs(gencli):
    for name in PROFILES:
        text = profile_file(name).read_text(encoding="utf-8")
        assert text.startswith("# "), name
        assert re.search(r"^# Checked against .*\d", text, re.MULTILINE), name
        result = gencli("config", "show", "--compat", name)
        said = [line for line in result.err.splitlines() if line.startswith(f"Notice: Compat {name}: ")]
        assert (result.code, len(said) >= 2) == (0, True), name
        assert "A seed gives other tokens" in said[0], name
