"""Files that commands are given: pipes, devices, links, deleted folders; nothing of a wrong file is shown."""

import os

import pytest

from gencli.cli.app import COMMANDS
from tests.cli.test_files import assert_a_deleted_folder_is_said, here

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


def test_each_command_says_that_its_folder_was_deleted(here):
    for name in COMMANDS.keys() - {"completion", "run"}:
        assert_a_deleted_folder_is_said(name)
