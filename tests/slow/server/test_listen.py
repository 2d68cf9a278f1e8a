"""A small siege of a server behind a real socket: hostile bytes, half-open and many connections."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.server.hostile import KINDS, shots
from tests.server.raw import fire, post
from tests.server.test_listen import HEALTH, MOST, connect, server, until

ROOT = str(Path(__file__).parents[3]).encode()
SLOW = {
    "bodies", "long prompts", "regexes", "grammars", "schemas",
}  # seconds each: scripts/siege_server.py has them  # fmt: skip


def test_hostile_requests_are_refused_with_a_reason(server, capfd):
    async def story(kind):
        for shot in shots(kind, 4):
            if len(shot.parts[0]) < 1 << 20:
                reply = await fire(server.port, shot)
                case = (kind, shot.parts[0][:600], reply)
                assert reply.status // 100 == 4, case
                error = reply.error
                assert error.keys() == {"message", "type", "param", "code"}, case
                assert all((error["message"], error["code"], len(reply.body) < 4000)), case
                assert not [part for part in (b"\x1b", ROOT) if part in reply.body], case

    assert len(KINDS) >= 40
    for kind in KINDS:
        if kind not in SLOW:
            asyncio.run(story(kind))
            assert "Traceback" not in capfd.readouterr().err, kind


def test_a_head_that_never_ends_is_cut_off(connect):
    heads = [b"", HEALTH[:30], HEALTH[:-2]]
    for head, connection in [(head, connect(head)) for head in heads]:
        assert connection.recv(1) == b"", head


def test_a_head_that_comes_byte_by_byte_is_cut_off_too(connect):
    connection = connect()

    def drip():
        while True:
            connection.send(b"G")
            time.sleep(0.02)

    with pytest.raises(ConnectionError):
        drip()


def test_a_connection_that_waits_for_its_answer_keeps_its_place(connect):
    running = connect(post({"prompt": "a", "max_tokens": 600, "ignore_eos": True, "seed": 1}))
    time.sleep(0.1)
    for _ in range(3 * MOST):
        connect()
    assert running.recv(12) == b"HTTP/1.1 200"


def test_an_answer_that_nobody_reads_is_given_up(server, connect):
    body = {"prompt": "a" * 900, "echo": True, "logprobs": 20, "max_tokens": 0}
    connect(post(body), size=4096)
    until(lambda: server.connections)
    until(lambda: not server.connections)
