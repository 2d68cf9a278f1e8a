"""A small siege of a server behind a real socket: hostile bytes, half-open and many connections."""

import asyncio
from pathlib import Path

from tests.server.hostile import KINDS, shots
from tests.server.raw import fire
from tests.server.test_siege import server

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

    for kind in KINDS:
        if kind not in SLOW:
            asyncio.run(story(kind))
            assert "Traceback" not in capfd.readouterr().err, kind
