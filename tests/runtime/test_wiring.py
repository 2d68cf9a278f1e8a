"""Imports in a block are not slowed down by the garbage collector, which runs again behind it.

Threads spin on a quiet machine and sleep on a shared one; the environment has the last word.
"""

import gc
import os

from gencli.helpers import is_shared
from gencli.runtime import machine as waiting
from gencli.runtime.machine import importing, set_wait


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


def test_a_machine_is_shared_where_tasks_wait_for_a_core(tmp_path, monkeypatch):
    """Linux says so; elsewhere the load decides."""
    path = tmp_path / "cpu"
    linux = "some avg10={:.2f} avg60=9.00 avg300=9.00 total=5\nfull avg10=0.00 total=0\n"
    for share, expected in ((0.0, False), (9.5, False), (51.02, True)):
        path.write_text(linux.format(share))
        assert is_shared(path) == expected, share
    for load, expected in ((0.1, False), (10**6, True)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        for text in ("", "some avg10=x"):
            path.write_text(text)
            assert is_shared(path) == expected, (load, text)
        assert is_shared(tmp_path / "missing") == expected, load


def test_the_choice_is_told_to_the_library(monkeypatch):
    for wait, shared, environ, policy in (
        ("auto", False, {}, None),
        ("auto", True, {}, "PASSIVE"),
        ("spin", True, {}, None),
        ("sleep", False, {}, "PASSIVE"),
        ("sleep", False, {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
    ):
        monkeypatch.setattr(waiting, "is_shared", lambda shared=shared: shared)
        set_wait(wait, environ)
        assert environ.get("OMP_WAIT_POLICY") == policy, (wait, shared)
