"""A terminal shows flags where a message of the library has option keys."""

from gencli.batch.batch_options import OWN
from gencli.config.option_names import with_flags
from gencli.config.run_options import OPTIONS


def test_the_key_of_an_option_is_shown_as_its_flag():
    for entry in [*OPTIONS, *OWN]:
        assert with_flags(f"Raise `{entry.key}` to 4.") == f"Raise {entry.flag} to 4.", entry

    assert with_flags("Add `verify` = rejection, or `n` = 4.") == "Add --verify rejection, or -n 4."

    assert with_flags("`matched` says at which; `maxx` = 4.") == "`matched` says at which; `maxx` = 4."

    flags = {entry.key: entry.flag for entry in OPTIONS}
    assert [entry.key for entry in OWN if flags.get(entry.key, entry.flag) != entry.flag] == []
