"""`gencli config`: list, show, lint, diff, export, path."""

from tests.config.test_command import (
    FLAGS,
    assert_a_stack_is_exported_as_one,
    assert_an_export_is_the_same_run,
    assert_nothing_heavy_is_imported,
)
from tests.config.test_presets import SHIPPED


def test_an_exported_run_of_every_preset_is_the_same_run(here, gencli):
    for name in SHIPPED:
        assert_an_export_is_the_same_run(here, gencli, ("--preset", name))


def test_all_presets_that_stack_are_exported_as_one_that_is_the_same(here):
    for first in SHIPPED:
        for flags in FLAGS.values():
            assert_a_stack_is_exported_as_one(here, first, flags)


def test_no_command_of_config_imports_anything_heavy():
    assert_nothing_heavy_is_imported(["list"], ["lint", "chat"], ["path"])
