"""Settings of the whole suite: one thread, no network, a cache of its own; processes that end with a test.

Generated examples are the same in each run, without a clock; `--hypothesis-profile=default` tries others.
"""

import atexit
import gc
import os
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # of processes, too: threads that wait for a core spin

import pytest
import torch
from hypothesis import HealthCheck, settings

from processors import child
from tests.helpers.forks import quick_command
from tests.helpers.quick import end_quick, quick_gencli, quick_python
from tests.interpreted import ON_CUDA, interpreted

settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")
torch.set_num_threads(1)


gc.disable()  # what is imported and collected stays until the end
atexit.register(gc.unfreeze)  # or xgrammar reports leaks


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


COMMAND = child._command  # of children


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items):
    """Mark the tests of kernels if they run on a card: those of modules with a function that runs kernels."""
    for item in items:
        if ON_CUDA and any(runs_kernels(one) for one in vars(item.module).values()):
            item.add_marker("gpu")


def runs_kernels(value):
    return value is interpreted or getattr(value, "__globals__", {}).get("interpreted") is interpreted


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory):
    """What tests cache, keep and read is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.mktemp(kind.lower())))
        yield


@pytest.fixture(autouse=True)
def one_thread():
    """A command of a test with --threads sets the threads of this process; the next test has one again."""
    yield
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def default_recursion_limit():
    """PyTorch's compiler raises the limit of the process; the next test has Python's again."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture(scope="session", autouse=True)
def quick():
    """What compiles grammars is a quick process. The server of them ends with the session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("processors.child._command", quick_command(COMMAND, quick_python))
        yield
    end_quick()


@pytest.fixture(scope="module")
def own_children(quick):
    """What compiles grammars is started as Python: for tests of what it takes, and of how it ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("processors.child._command", COMMAND)
        yield


@pytest.fixture
def spawn():
    """Start processes of `gencli ARGUMENTS`; what still runs when the test ends is killed.

    They are forks of one that has imported gencli. `own=True` starts Python instead: for tests of how a
    process starts, of its id, of its limits, and of what the environment says to imported libraries.
    """
    started = []

    def begin(*arguments, own=False, env=None, **options):
        program = [sys.executable, "-m", "gencli"] if own else [str(quick_gencli())]
        command = [*program, *map(str, arguments)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            command, cwd=Path(__file__).parent.parent, env=os.environ | (env or {}), **(pipes | options)
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()
