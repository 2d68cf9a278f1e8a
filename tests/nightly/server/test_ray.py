"""examples/serve_ray.py: two replicas of Ray Serve, one of them killed under load."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from gencli import LLM
from tests.helpers.asking import ask
from tests.helpers.mortal import Mortal

ROOT = Path(__file__).parents[3]
OPTIONS = {"max_tokens": 60, "temperature": 0.8, "top_p": 0.9}
BODY = {"prompt": "Once upon a time", **OPTIONS}
SEEN = {"stages": {"mortal": 10**6}}  # says which process answers
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("ray", "fastapi", "mmh3"))), reason="Ray Serve is not installed: gencli[ray]"
)


@pytest.fixture
def mortal(tmp_path):
    return Mortal(tmp_path)


@pytest.fixture
def url(mortal):
    """The address of two replicas with half a CPU each."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, ROOT / "examples" / "serve_ray.py", "--cpus", "0.5", "--port", str(port)]
    variables = {"GENCLI_MODEL": "tiny", "GENCLI_DTYPE": "float32", "GENCLI_PLUGIN": str(mortal.plugin)}
    env = os.environ | mortal.env | variables | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        said = []
        try:
            while "is ready at" not in (line := process.stderr.readline()):
                said.append(line)
                assert line, said
            yield f"http://127.0.0.1:{port}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()  # Ray's processes end with it


def two_replicas(url, mortal):
    """The two processes; requests of one session are answered by one of them."""
    found = set()
    for session in count():
        for seed in range(2):
            ask(url, BODY | SEEN | {"seed": seed}, {"X-Session-Id": str(session)})
        answering = mortal.pids()
        assert len(answering) == 1
        found |= answering
        if len(found) == 2:
            break
    return found


def test_texts_are_those_of_a_run_whichever_replica_answers_or_dies(url, mortal, spawn):
    with LLM("tiny", dtype="float32") as llm:
        expected = [llm.generate(BODY["prompt"], seed=seed, **OPTIONS).texts for seed in range(16)]
    flags = ("--model", "tiny", "--dtype", "float32", "--max-tokens", 60, "-t", 0.8, "--top-p", 0.9)
    said, _ = spawn("run", *flags, "--seed", 7, BODY["prompt"], text=True).communicate()
    assert said == expected[7][0] + "\n"
    replicas, answering = two_replicas(url, mortal), set()
    while answering != replicas:
        assert ask(url, BODY | SEEN | {"seed": 7}) == (expected[7], [])
        answering |= mortal.pids()

    bodies = [BODY | {"seed": seed} for seed in range(16)]
    bodies[3]["stages"] = {"mortal": 40}
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda body: ask(url, body), bodies))
    assert [texts for texts, _ in answers] == expected
    assert answers[3][1] == [(500, "Internal Server Error")]
    mortal.pids()
    while not mortal.pids() - replicas:  # until a new one answers
        ask(url, BODY | SEEN | {"seed": 1})
