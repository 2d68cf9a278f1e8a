"""Imports in a block are not slowed down by the garbage collector, which runs again behind it."""

import gc

import pytest

from gencli.runtime.quiet import importing


@pytest.mark.parametrize("error", [None, ImportError])
def test_the_collector_rests_in_the_block_alone(error: type[Exception] | None) -> None:
    seen = []
    try:
        with importing():
            seen.append(gc.isenabled())
            if error is not None:
                raise error
    except ImportError:
        pass
    finally:
        gc.unfreeze()
    assert seen == [False]
    assert gc.isenabled()
