"""Attack `gencli serve` and print what it costs, as JSON lines.

    PYTHONPATH=. python scripts/siege_server.py [PART ...] [--model NAME] [--requests N] [--connections N]

Without a part all of them run, each on a server of its own. Before,
during and after each the texts of fixed
requests have to be the same, and another client is answered meanwhile. Linux only.
"""

import argparse
import asyncio
import json
import random
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.server.besieged import FIXED, SCHEMA, Server, besieged
from tests.server.hostile import CHAT, KINDS, RESPONSES, TEXT, shots
from tests.server.raw import Shot, fire, post

_LONG = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "seed": 1}


# Requests that are cancelled at random moments.


def _cancelled(draw):
    words = "the a fox and is in of to was on it".split()
    text = " ".join(draw.choices(words, k=draw.randint(1, 200)))
    body = {"max_tokens": draw.randint(1, 600), "stream": draw.random() < 0.5, "n": draw.choice([1, 1, 2,
                                                            4]),
            "ignore_eos": draw.random() < 0.5}  # fmt: skip
    body |= draw.choice([
        {}, {}, {"json_schema": SCHEMA}, {"regex": f"[a-z]{{{draw.randint(2, 90)}}}"}, {"guidance": 1.5},
        {"grammar": 'root ::= ("a" | "b ")* "c"'}, {"beams": 3, "n": 1, "stream": False},
        {"session": str(draw.random()), "n": 1},
        {"logprobs": 3}, {"draft": "ngram"},
    ])  # fmt: skip
    if draw.random() < 0.4:
        body |= {"messages": [{"role": "user", "content": text}]}
        if "logprobs" in body:
            body |= {"logprobs": True, "top_logprobs": 3}
        return body, CHAT
    if draw.random() < 0.1:
        body = {"input": text, "stream": body["stream"]}
        return body, RESPONSES
    return body | {"prompt": text}, TEXT


async def cancels(server, count):
    draw = random.Random(3)
    statuses, pool = {}, asyncio.Semaphore(64)

    async def one():
        body, path = _cancelled(draw)
        moment = draw.choice([0.0, 0.005, 0.05, draw.uniform(0, 0.3), draw.uniform(0, 3)])
        async with pool:
            try:
                reply = await fire(server.port, Shot((post(body, path),)), seconds=max(moment, 1e-4))
                status = reply.status
                if status not in (200, 429):
                    statuses[f"{status}: {reply.body[:200]!r} {body}"] = 1
            except TimeoutError:
                status = "cancelled"
        statuses[status] = statuses.get(status, 0) + 1

    async def siege(found):
        found["statuses"] = statuses
        for turn in range(4):  # the later ones show whether memory still grows
            await asyncio.gather(*(one() for _ in range(count)))
            await server.idle()
            found[f"rss_{turn}_mb"] = round(server.status())

    return await besieged(server, siege)


# Hostile requests of all kinds.


def _folders():
    home = Path(__file__).resolve().parent.parent
    return [str(home), str(Path.home()), sys.prefix, "site-packages", "Traceback", 'File "']


async def hostile(server, count):
    per_kind = None if not count else -(-count // len(KINDS))
    folders, wrong, seconds, statuses = _folders(), [], [], {}

    def judge(kind, shot, reply):
        error, text = reply.error, reply.body.decode("utf-8", "replace")
        fine = str(reply.status)[0] in shot.allowed
        if fine and reply.status >= 400:
            fine = all(isinstance(error.get(key), str) and error[key] for key in ("message", "type", "code"))
            fine &= "param" in error and len(text) < 4000
        fine &= not any(folder in text for folder in folders) and "\x1b" not in text
        if not fine:
            sent = b"".join(shot.parts)
            wrong.append({"kind": kind, "status": reply.status,
                          "sent": sent[:100].decode("latin-1") + " ... "
                          + sent.partition(b"\r\n\r\n")[2][:300].decode("latin-1"),
                          "got": text[:300]})  # fmt: skip

    async def siege(found):
        found |= {"rss_by_kind_mb": {}, "statuses": statuses, "wrong": 0}
        for kind in KINDS:
            found["now"] = kind
            for shot in shots(kind, per_kind):
                try:
                    reply = await fire(server.port, shot)
                except TimeoutError:
                    wrong.append({"kind": kind, "status": "no end in 60 s", "sent": str(shot.parts[0][:600])})
                    continue
                except ConnectionRefusedError:
                    raise SystemExit(f"The server has died in {kind}: {server.said[-3000:]}") from None
                judge(kind, shot, reply)
                statuses[reply.status] = statuses.get(reply.status, 0) + 1
                seconds.append((round(reply.seconds, 2), kind))
            found["rss_by_kind_mb"][kind] = round(server.status())
        found |= {
            "shots": len(seconds),
            "kinds": len(KINDS),
            "slowest": sorted(seconds)[-6:],
            "wrong": len(wrong),
        }

    await server.ask(*FIXED[2])
    found = await besieged(server, siege)
    for each in wrong:
        print(json.dumps({"part": "hostile", "wrong": each}), flush=True)
    return found


# Connections: half-open, slow, large, many.


async def _open(server, data=b"", size=0):
    """Open a connection and send `data`; `size` is that of the receive buffer."""
    connection = socket.socket()
    if size:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, ("127.0.0.1", server.port))
    with suppress(ConnectionError):  # refused while it sends
        await loop.sock_sendall(connection, data)
    return connection


async def _all_closed(connections, seconds=90.0):
    """Wait until the server has closed connections; return the seconds and the first bytes of the answers."""
    begin, answers = time.monotonic(), {}
    left = list(connections)
    while left and time.monotonic() - begin < seconds:
        for connection in [*left]:
            data = b""
            with suppress(BlockingIOError):
                with suppress(ConnectionError):
                    data = connection.recv(65536)
                if not data:
                    left.remove(connection)
                answers[data[9:12].decode()] = answers.get(data[9:12].decode(), 0) + 1
        await asyncio.sleep(0.1)
    for connection in connections:
        connection.close()
    return {"closed_after_s": round(time.monotonic() - begin, 1), "left": len(left), "answers": answers}


async def half_open(server, count):
    head = post({**_LONG, "max_tokens": 1})

    async def siege(found):
        for name, data in (("nothing", b""), ("half a head", head[:40]), ("half a body", head[:-5])):
            found["now"] = name
            connections = [await _open(server, data) for _ in range(count)]
            await asyncio.sleep(1)
            found[name] = {"files": server.files, "rss_mb": round(server.status())}
            found[name] |= await _all_closed(connections)

    return await besieged(server, siege)


async def drip(server, count):
    """Send a head by one byte a second, and read an answer by one byte a second."""

    async def siege(found):
        writers = [await _open(server) for _ in range(count)]
        body = {**_LONG, "stream": True, "logprobs": 20}
        readers = [await _open(server, post(body), size=4096) for _ in range(8)]
        await asyncio.sleep(1)
        begin, left = time.monotonic(), {*writers}
        while time.monotonic() - begin < 150 and (left or server.files > found.get("files", 0)):
            for one in [*left]:
                try:
                    one.send(b"G")
                except OSError:
                    left.remove(one)
            for one in readers:
                with suppress(OSError):
                    one.recv(1)
            seconds, gauges = round(time.monotonic() - begin, 1), await server.gauges()
            if not left:
                found.setdefault("writers_closed_after_s", seconds)
                found.setdefault("files", server.files - len(readers))
            if gauges["num_calls_open"] <= 1:  # one may be the other client's
                found.setdefault("slow_readers_cut_off_after_s", seconds)
            await asyncio.sleep(1)
        found |= {
            "connections_closed_after_s": round(time.monotonic() - begin, 1),
            "rss": round(server.status()),
        }

    return await besieged(server, siege)


async def large(server, count):
    """Bodies of 100 MB that say so, that do not, and that nobody asked for."""

    async def siege(found):
        block = b" " * (1 << 20)
        chunk = b"100000\r\n" + block + b"\r\n"
        chunked = post(b"", Content_Length=None, Transfer_Encoding="chunked")
        for name, parts in (
            ("said", (post(b"", Content_Length=str(100 << 20)), *[block] * 100)),
            ("chunked", (chunked, *[chunk] * 100)),
            ("without a key", (post(b"", key="x", Content_Length=str(100 << 20)), *[block] * 100)),
            ("unknown route", (post(b"", "/nope", Content_Length=str(100 << 20)), *[block] * 100)),
        ):
            reply = await fire(server.port, Shot(parts))
            found[name] = [
                reply.status,
                reply.error.get("code"),
                round(reply.seconds, 2),
                round(server.status()),
            ]
        bodies = post(b"", Content_Length=str(8 << 20))
        connections = [await _open(server, bodies + b" " * (7 << 20)) for _ in range(60)]
        await asyncio.sleep(2)
        found["60 bodies of 7 MiB"] = [round(server.status()), server.files]
        found["60 bodies"] = await _all_closed(connections)

    return await besieged(server, siege)


async def many(server, count):
    """Many connections that say nothing, many that ask in turns, many that stay open."""
    ask = post(b"", "/health", method="GET", Connection="keep-alive")

    async def siege(found):
        found["now"] = "idle"
        connections = [await _open(server) for _ in range(count)]
        found["idle"] = {"opened": len(connections), "files": server.files, "rss_mb": round(server.status())}
        found["idle"] |= await _all_closed(connections)
        found["now"], begin = "in turns", time.monotonic()
        for _ in range(count):
            assert (await fire(server.port, Shot((post(b"", "/health", method="GET"),)))).status == 200
        found["in turns"] = {"seconds": round(time.monotonic() - begin, 1), "files": server.files}
        found["now"] = "kept open"
        connections = [await _open(server, ask) for _ in range(1000)]
        found["kept open"] = {"files": server.files, "rss_mb": round(server.status())}
        found["kept open"] |= await _all_closed(connections)

    return await besieged(server, siege)


# Ends: signals under load, a dead engine, a row that fails, a full server.

_FAULTY = """
import signal, sys
from gencli.engine.engine import Engine
from gencli.cli.app import main
step, broken = Engine.step, []
def faulty(self):
    if broken:
        raise RuntimeError("the device is gone")
    return step(self)
Engine.step = faulty
signal.signal(signal.SIGUSR1, lambda *_: broken.append(1))
sys.exit(main())
"""


async def _under_signals(server, *moments, stream=True):
    """Send signals to a server under load; return how the requests end, and the seconds until its end."""
    tasks = [
        asyncio.create_task(fire(server.port, Shot((post({**_LONG, "seed": n, "stream": stream}),))))
        for n in range(24)
    ]
    await asyncio.sleep(1)
    begin, health = time.monotonic(), []
    for moment in moments:
        await asyncio.sleep(moment)
        server.process.send_signal(signal.SIGTERM)
        with suppress(OSError):
            health.append((await server.ask(b"", "/health", method="GET")).status)
    ends = {}
    for reply in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(reply, Exception):
            end = type(reply).__name__
        else:
            last = reply.body.decode().strip().split("\n\n")
            error = next(
                (
                    json.loads(line[6:])["error"]["code"]
                    for line in last[-3:]
                    if line.startswith('data: {"error"')
                ),
                "",
            )
            is_whole = last[-1].endswith("[DONE]") or not stream
            end = f"{reply.status} {error or reply.error.get('code') or ('whole' if is_whole else 'cut')}"
        ends[end] = ends.get(end, 0) + 1
    code = await asyncio.to_thread(server.process.wait, 60)
    return {"ends": ends, "health": health, "exit": code, "seconds": round(time.monotonic() - begin, 1),
            "stderr": server.said[-600:]}  # fmt: skip


async def ends(server, count):
    async def siege(found):
        slow = {**_LONG, "stop_regex": "((a|e|i|o|u|[a-z ])+)+[0-9]{3}$", "max_tokens": 300}
        full = [server.ask({**FIXED[0][0], "max_tokens": 8}) for _ in range(count)]
        replies = await asyncio.gather(server.ask(slow), *full)
        found["a row that fails"] = [replies[0].status, replies[0].error.get("message", "")[:90]]
        statuses = [reply.status for reply in replies[1:]]
        found["asked at once"] = {str(status): statuses.count(status) for status in sorted({*statuses})}
        found["retry-after"] = {
            reply.headers.get("retry-after") for reply in replies if reply.status == 429
        } == {"1"}

    found = await besieged(server, siege)
    for name, flags, moments in (
        ("SIGTERM, long time", ("--shutdown-timeout", "60"), (0.0,)),
        ("SIGTERM, short time", ("--shutdown-timeout", "1"), (0.0,)),
        ("SIGTERM twice", ("--shutdown-timeout", "60"), (0.0, 0.5)),
    ):
        with Server(server.model, *flags) as other:
            found[name] = await _under_signals(other, *moments)
    with Server(server.model) as other:
        slow = [asyncio.create_task(fire(other.port, shot)) for shot in shots("regexes")[::2]]
        await asyncio.sleep(1)
        begin = time.monotonic()
        for _ in range(2):
            other.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
        code = await asyncio.to_thread(other.process.wait, 90)
        found["SIGTERM twice while grammars compile"] = [code, round(time.monotonic() - begin, 1)]
        await asyncio.gather(*slow, return_exceptions=True)
    with Server(server.model, launcher=("-c", _FAULTY)) as other:
        running = asyncio.create_task(other.ask({**_LONG, "stream": True}))
        await asyncio.sleep(0.5)
        other.process.send_signal(signal.SIGUSR1)
        last = (await running).body.decode().strip().split("\n\n")[-2:]
        health = await other.ask(b"", "/health", method="GET")
        new = await other.ask(_LONG)
        other.process.send_signal(signal.SIGTERM)
        found["dead engine"] = {"stream": last, "health": [health.status, health.body.decode()],
                                "new": [new.status, new.error], "exit": other.process.wait(30)}  # fmt: skip
    return found


PARTS = {
    "cancels": (cancels, "requests"), "hostile": (hostile, "requests"), "half-open": (half_open,
                                                            "connections"),
    "drip": (drip, "connections"), "large": (large, "connections"), "many": (many, "connections"),
    "ends": (ends, "requests"),
}  # fmt: skip


def main():
    options = _options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in options.part or PARTS:
        part, size = PARTS[name]
        with Server(options.model, *options.flag) as server:
            found = asyncio.run(part(server, getattr(options, size)))
            print(json.dumps({"part": name, **found}), flush=True)


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--requests", type=int, default=500, help="0: all hostile requests that there are")
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument(
        "--flag", action="append", default=[], help="of gencli serve, such as --flag=--max-batch=4"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
