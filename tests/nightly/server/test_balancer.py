"""Servers behind a balancer, one of them killed under load: every text is that of one process alone."""

import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import cycle
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.request import urlopen

import pytest

from gencli import LLM
from tests.helpers.asking import ask
from tests.helpers.mortal import Mortal

OPTIONS = {"max_tokens": 60, "temperature": 0.8, "top_p": 0.9}
BODY = {"prompt": "Once upon a time", **OPTIONS}


class Forward(BaseRequestHandler):
    """Copies the bytes of a connection to the next server that accepts one, and back."""

    def handle(self):
        with closing(self.next_server()) as there:
            threading.Thread(target=copy, args=(self.request, there), daemon=True).start()
            copy(there, self.request)

    def next_server(self):
        while True:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(next(self.server.addresses))


def copy(source, target):
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)


@pytest.fixture
def mortal(tmp_path):
    return Mortal(tmp_path)


@pytest.fixture
def servers(spawn, mortal):
    """The addresses of two servers, by process."""
    flags = ("--model", "tiny", "--dtype", "float32", "--plugin", mortal.plugin, "--port", "0")
    processes = [spawn("serve", *flags, env=mortal.env, text=True) for _ in range(2)]
    return {process: address(process) for process in processes}


def address(process):
    for line in process.stderr:
        if found := re.search(r"answers at http://(\S+):(\d+)/v1", line):
            return found[1], int(found[2])
    raise AssertionError("the server has ended")


@pytest.fixture
def url(servers):
    """The address of the balancer, which takes turns."""
    with ThreadingTCPServer(("127.0.0.1", 0), Forward) as balancer:
        balancer.addresses = cycle(servers.values())
        threading.Thread(target=balancer.serve_forever).start()
        yield "http://{}:{}".format(*balancer.server_address)
        balancer.shutdown()


def test_a_killed_server_changes_no_text(servers, url, mortal):
    bodies = [BODY | {"seed": seed} for seed in range(16)]
    bodies[3]["stages"] = {"mortal": 40}
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda body: ask(url, body), bodies))
    with LLM("tiny", dtype="float32") as llm:
        expected = [llm.generate(BODY["prompt"], seed=seed, **OPTIONS).texts for seed in range(16)]
    assert [texts for texts, _ in answers] == expected
    assert answers[3][1]
    assert mortal.has_killed
    assert sorted(process.poll() is None for process in servers) == [False, True]
    assert urlopen(f"{url}/health").status == 200
