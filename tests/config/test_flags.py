"""A terminal shows flags where a message of the library has option keys."""

import pytest

from gencli.batch.options import OWN
from gencli.config.options.flags import with_flags
from gencli.config.options.run import OPTIONS


@pytest.mark.parametrize("entry", [*OPTIONS, *OWN], ids=lambda entry: entry.key)
def test_the_key_of_an_option_is_shown_as_its_flag(entry):
    assert with_flags(f"Raise `{entry.key}` to 4.") == f"Raise {entry.flag} to 4."


def test_a_value_stands_behind_its_flag():
    assert with_flags("Add `verify` = rejection, or `n` = 4.") == "Add --verify rejection, or -n 4."


def test_other_text_in_backticks_stays_as_it_is():
    assert with_flags("`matched` says at which; `maxx` = 4.") == "`matched` says at which; `maxx` = 4."


def test_a_key_has_one_flag_in_all_tables():
    flags = {entry.key: entry.flag for entry in OPTIONS}
    assert [entry.key for entry in OWN if flags.get(entry.key, entry.flag) != entry.flag] == []
