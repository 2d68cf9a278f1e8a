"""A device takes the result as a file does."""

import os


def test_the_null_device_takes_the_result(gencli):
    assert gencli("run", "-m", "fake", "--max-tokens", "2", "--output", os.devnull, "hi").code == 0
