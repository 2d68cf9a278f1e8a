"""Imports in a block are not slowed down by the garbage collector, which runs again behind it."""

import gc

from gencli.runtime.machine import importing


def test_the_collector_rests_in_the_block_alone():
    for error in (None, ImportError):
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
        assert seen == [False], error
        assert gc.isenabled(), error
