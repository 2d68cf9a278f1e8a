"""A `gencli serve` in the project's own environment, a process on a free port, for clients in theirs.

No client reaches further than this machine: whatever it wants to report or to fetch fails at once.
"""

import asyncio
import os
import re
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.models import SMOL, gguf

GENCLI = Path(__file__).parents[2] / ".venv" / "bin" / "gencli"
# Few texts at once, and a queue that a test can fill.
TINY = ("--model", "tiny", "--dtype", "float32", "--max-batch", "4", "--max-queue", "60")
# Likeliest tokens, and an end: clients leave temperature and length to the server.
CHAT = ("--served-name", "smol", "--dtype", "float32", "--temperature", "0", "--max-tokens", "100")

# Set before a client is imported. A proxy that is none is the fence for what has no switch of its own.
os.environ |= {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore")  # the warnings are those of clients


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


@contextmanager
def serving(folder, *flags, program=GENCLI):
    log = folder / "stderr"
    with log.open("w") as stderr:
        process = subprocess.Popen([program, "serve", "--port", "0", *flags], stderr=stderr)
    try:
        while (found := re.search(r"answers at (\S+)/v1", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield Server(found[1])
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def wait():
    """Run a coroutine. All in one loop, as some clients keep their connections from one to the next."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="session")
def server(own_folders, tmp_path_factory):
    """The bundled model."""
    with serving(tmp_path_factory.mktemp("server"), *TINY) as made:
        yield made


@pytest.fixture(scope="session")
def smol(own_folders, tmp_path_factory):
    """A real model of chats, SmolLM2-135M-Instruct."""
    with serving(tmp_path_factory.mktemp("smol"), "--model", str(gguf(SMOL)), *CHAT) as made:
        yield made
