"""Threads beside the event loop: results, errors, and an end of the process that does not wait for them."""

import subprocess
import sys
import threading

import pytest

from gencli.server.served_models import DaemonPool


def test_results_and_errors_reach_who_waits():
    pool = DaemonPool(2)
    assert [pool.submit(pow, 2, number).result(20) for number in range(5)] == [1, 2, 4, 8, 16]
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result(20)
    pool.shutdown()


def test_cancelled_work_is_not_done():
    pool, go, done = DaemonPool(1), threading.Event(), []
    first = pool.submit(go.wait, 20)
    second = pool.submit(done.append, 1)
    assert second.cancel()
    go.set()
    assert first.result(20)
    pool.submit(done.append, 2).result(20)
    assert done == [2]
    pool.shutdown()


def test_the_process_ends_while_a_thread_works():
    code = (
        "import time; from gencli.server.served_models import DaemonPool; "
        "DaemonPool(1).submit(time.sleep, 600); print('over')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "over\n"
