"""The compat profiles for tests: their files, and what they need that a registry may lack."""

import pytest

from gencli.config.options.compat import profiles
from gencli.config.presets.find import profile_file
from gencli.config.presets.read import read_preset
from processors.registry import builtin_registry

__all__ = ["PROFILES", "skip_without"]

PROFILES = profiles()


def skip_without(*names):
    """Skip the test if a profile sets a stage or field that is not registered yet; other names need none."""
    for name in names:
        if name in PROFILES:
            faults = read_preset(profile_file(name), builtin_registry()).messages()
            if missing := [text for text in faults if "no stage" in text or "no parameter" in text]:
                pytest.skip(missing[0])
