"""The presets that ship, how presets are found, and how they build on each other."""

from gencli.config.layers import gather_presets
from tests.cli.conftest import FAKE
from tests.config.presets.test_presets import MARKS, SHIPPED


def test_a_shipped_preset_generates_with_its_values(here, gencli):
    for name in SHIPPED:
        key, value = MARKS[name]
        assert gather_presets(name)[key] == value, name
        flags = ("--preset", name, "--max-tokens", "8", "--seed", "3", "--quiet", "x")
        result = gencli("run", *FAKE, *flags)
        assert (result.code, result.err) == (0, ""), name
        assert result.out.strip(), name
