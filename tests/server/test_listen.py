"""A small siege of a server behind a real socket: hostile bytes, half-open and many connections."""

import asyncio
import resource
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial

import pytest
import uvicorn

from gencli.server.access import AccessRules, CallLimits, Conditions
from gencli.server.asgi_app import make_app
from gencli.server.listen import Connection, Connections, max_connections
from tests.server.conftest import loaded_models
from tests.server.raw import Shot, fire, post

MOST = 12


@pytest.fixture(scope="module")
def server():
    """A server on the fake model: 12 connections, half a second for a head and for what nobody reads."""
    conditions = Conditions(rules=AccessRules(key="k"), write_timeout=0.5, limits=CallLimits(body=1 << 20))
    with loaded_models(conditions, max_batch=8) as models, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connections = Connections(MOST, head_seconds=0.5, close_seconds=0.5)
        made = partial(Connection, connections=connections)
        config = uvicorn.Config(make_app(models), http=made, log_config=None, ws="none", loop="asyncio")
        running = uvicorn.Server(config)

        async def swept():
            async def sweeping():
                while True:
                    connections.sweep()
                    await asyncio.sleep(0.05)

            task = asyncio.create_task(sweeping())
            await running.serve([listener])
            task.cancel()

        thread = threading.Thread(target=lambda: asyncio.run(swept()))
        thread.start()
        while not running.started:
            time.sleep(0.01)
        running.port, running.connections = listener.getsockname()[1], connections
        running.serving = models.get(None)
        yield running
        running.should_exit = True
        thread.join()


@pytest.fixture
def connect(server):
    """Opens connections that have sent some bytes; closes them at the end."""
    with ExitStack() as stack:

        def opened(data=b"", size=1 << 16):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(data)
            return connection

        yield opened


def ask(server, *parts):
    return asyncio.run(fire(server.port, Shot(parts)))


HEALTH = post(b"", "/health", method="GET")


def test_more_connections_than_the_limit_take_the_place_of_those_that_wait(server, connect):
    silent = [connect() for _ in range(3 * MOST)]
    assert ask(server, HEALTH).status == 200
    assert len(server.connections) <= MOST
    assert silent[0].recv(1) == b""


def test_unfinished_bodies_do_not_fill_the_server(server, connect):
    for _ in range(MOST):
        connect(post({"prompt": "a"})[:-3])
    assert ask(server, post({"prompt": "a", "max_tokens": 2})).status == 200


def test_a_client_that_sends_a_large_body_reads_why_it_is_refused(server):
    block = b" " * (1 << 20)
    chunks = [b"100000\r\n" + block + b"\r\n"] * 20
    chunked = {"Content_Length": None, "Transfer_Encoding": "chunked"}
    for head, parts in (
        ({"Content_Length": str(20 << 20)}, [block] * 20),
        (chunked, [*chunks, b"0\r\n\r\n"]),
    ):
        reply = ask(server, post(b"", **head), *parts)
        assert (reply.status, reply.error["code"]) == (413, "body_too_large"), head
    for path, key, status in (("/v1/completions", "x", 401), ("/nope", "k", 404), ("/health", "k", 405)):
        reply = ask(server, post(b"", path, key=key, Content_Length=str(20 << 20)), *[block] * 20)
        assert reply.status == status


def until(condition):
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_a_client_that_sends_more_and_goes_away_ends_its_text(server, connect):
    """What comes after a request is read on, as only reading tells that the client has gone."""
    connection = connect(post({"prompt": "a", "max_tokens": 900, "ignore_eos": True, "n": 8}) + HEALTH)
    until(lambda: server.serving.thread.num_open)
    connection.close()
    until(lambda: not server.serving.thread.num_open)
    assert server.serving.metrics.finished["interrupted"]


def test_the_limit_of_connections_leaves_room_for_files():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 16 <= max_connections() <= max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= soft
