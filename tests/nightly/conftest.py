"""Nightly tests in shards: SHARD=k/N leaves every test whose id falls to another shard out."""

import os
from zlib import crc32

import pytest


def pytest_collection_modifyitems(config, items):
    shard = os.environ.get("SHARD", "")
    if not shard:
        return
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"SHARD is {shard!r}, but has to be k/N with 1 <= k <= N, as 2/3.")
    chosen = {item for item in items if crc32(item.nodeid.encode()) % int(count) == int(number) - 1}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]
