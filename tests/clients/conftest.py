"""One `gencli serve` on the bundled model, a process on a free port, for all tests with clients of others."""

import re
import subprocess
import time
import urllib.request
from dataclasses import dataclass

import pytest

from tests.helpers.quick import quick_gencli

# Few texts at once, and a queue that a test can fill.
FLAGS = ("--model", "tiny", "--dtype", "float32", "--port", "0", "--max-batch", "4", "--max-queue", "60")


@dataclass(frozen=True)
class Server:
    """Where the server answers, without /v1."""

    root: str

    @property
    def url(self):
        return f"{self.root}/v1"

    def is_idle(self, seconds=30.0):
        """Whether no request is left, at the latest after so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with urllib.request.urlopen(f"{self.root}/metrics") as reply:
                text = reply.read().decode()
            if all(re.search(rf"{name}\S* 0\b", text) for name in ("num_calls_open", "num_requests_running")):
                return True
            time.sleep(0.05)
        return False


@pytest.fixture(scope="session")
def server(quick, own_folders, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "stderr"
    with log.open("w") as stderr:
        process = subprocess.Popen([quick_gencli(), "serve", *FLAGS], stderr=stderr)
    try:
        while (found := re.search(r"answers at (\S+)/v1", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield Server(found[1])
    finally:
        process.terminate()
        process.wait(30)
