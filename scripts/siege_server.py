"""Attack `gencli serve` and print what it costs, as JSON lines.

    PYTHONPATH=. python scripts/siege_server.py [PART ...] [--model NAME] [--requests N] [--connections N]

Parts: cancels, hostile, slow, connections, ends. Without one all of them run, each on a server of its own.
Before, during and after each siege the texts of fixed requests have to be the same. Linux only: it reads the
memory and the open files of the server from /proc.
"""

import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.server.hostile import CHAT, KINDS, RESPONSES, TEXT, shots
from tests.server.raw import Shot, fire, post

_MEMORY = 10 << 30  # bytes of the server's address space: what takes more fails, and not the machine
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]}
FIXED = (
    ({"prompt": "Once upon a time", "seed": 7, "max_tokens": 30}, TEXT),
    ({"messages": [{"role": "user", "content": "Hello"}], "seed": 8, "max_tokens": 20, "n": 2}, CHAT),
    ({"prompt": "a", "json_schema": _SCHEMA, "seed": 9, "max_tokens": 40}, TEXT),
)


class Server:
    """A server in a process of its own; asks for the key k."""

    def __init__(self, model, *flags, launcher=("-m", "gencli")):
        command = [
            sys.executable,
            *launcher,
            "serve",
            "--model",
            model,
            "--port",
            "0",
            "--threads",
            "2",
            *flags,
        ]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "GENCLI_API_KEY": "k"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
        )  # fmt: skip
        self.lines, self.port = [], 0
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"answers at http://[\d.]+:(\d+)", line):
                self.port = int(found[1])
                break
        self.started = len(self.lines)
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    def status(self, name="VmRSS"):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s*(\d+)", text)[1]) / (1024 if name.startswith("Vm") else 1)

    @property
    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def said(self):
        """What the server has written to stderr since it was ready."""
        return "".join(self.lines[self.started :])

    async def ask(self, body, path=TEXT, **headers):
        return await fire(self.port, Shot((post(body, path, **headers),)))

    async def gauges(self):
        reply = await self.ask(b"", "/metrics", method="GET")
        found = re.findall(r"^gencli_(num_\w+|max_batch)\{.*\} (\S+)$", reply.body.decode(), re.MULTILINE)
        return {name: float(value) for name, value in found}

    async def texts(self):
        replies = [await self.ask(*each) for each in FIXED]
        choices = [json.loads(reply.body)["choices"] for reply in replies]
        return [[choice.get("text") or choice["message"]["content"] for choice in each] for each in choices]

    async def idle(self, seconds=30):
        """Wait until no text is open; return the seconds."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            gauges = await self.gauges()
            if not gauges["num_requests_running"] and not gauges["num_requests_waiting"]:
                break
            await asyncio.sleep(0.05)
        return time.monotonic() - begin


async def besieged(server, siege):
    """Run `siege` while another client asks for fixed texts; return what both have cost."""
    before = await server.texts()
    await server.idle()
    memory, files, done = server.status(), server.files, asyncio.Event()

    async def bystander():
        waits, same = [], True
        while not done.is_set():
            begin = time.monotonic()
            try:
                reply = await server.ask(*FIXED[0])
            except (OSError, TimeoutError) as error:
                waits.append(time.monotonic() - begin)
                same = f"{type(error).__name__}: {error}"
                continue
            waits.append(time.monotonic() - begin)
            if reply.status == 200:
                same &= json.loads(reply.body)["choices"][0]["text"] == before[0][0]
            elif reply.status != 429:
                same = f"status {reply.status}"
            await asyncio.sleep(0.1)
        return {"bystander_max_s": round(max(waits), 2), "bystander_asked": len(waits), "texts_during": same}

    other = asyncio.create_task(bystander())
    begin = time.monotonic()
    found = await siege(server)
    seconds = time.monotonic() - begin
    done.set()
    found |= await other
    begin = time.monotonic()
    answer = await server.ask(*FIXED[0])
    found |= {"answer_s": round(time.monotonic() - begin, 2), "answer_status": answer.status}
    found["idle_s"] = round(await server.idle(), 2)
    found |= {
        "seconds": round(seconds, 1), "texts_after": await server.texts() == before, "gauges": await server.gauges(),
        "rss_mb": [round(memory), round(server.status())], "peak_mb": round(server.status("VmHWM")),
        "files": [files, server.files], "threads": server.status("Threads"), "stderr": server.said[-2000:],
    }  # fmt: skip
    return found


# Requests that are cancelled at random moments.


def _cancelled(draw):
    words = "the a fox and is in of to was on it".split()
    text = " ".join(draw.choices(words, k=draw.randint(1, 200)))
    body = {"max_tokens": draw.randint(1, 600), "stream": draw.random() < 0.5, "n": draw.choice([1, 1, 2, 4]),
            "ignore_eos": draw.random() < 0.5}  # fmt: skip
    body |= draw.choice([
        {}, {}, {"json_schema": _SCHEMA}, {"regex": f"[a-z]{{{draw.randint(2, 90)}}}"}, {"guidance": 1.5},
        {"grammar": 'root ::= ("a" | "b ")* "c"'}, {"beams": 3, "n": 1, "stream": False}, {"session": str(draw.random()), "n": 1},
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

    async def siege(server):
        await asyncio.gather(*(one() for _ in range(count)))
        return {"statuses": statuses}

    return await besieged(server, siege)


# Hostile requests of all kinds.


def _folders():
    home = Path(__file__).resolve().parent.parent
    return [str(home), str(Path.home()), sys.prefix, "site-packages", "Traceback", 'File "']


async def hostile(server, count):
    per_kind = None if not count else -(-count // len(KINDS))
    folders, wrong, seconds, statuses, by_kind = _folders(), [], [], {}, {}

    def judge(kind, shot, reply):
        error, text = reply.error, reply.body.decode("utf-8", "replace")
        fine = str(reply.status)[0] in shot.allowed
        if fine and reply.status >= 400:
            fine = all(isinstance(error.get(key), str) and error[key] for key in ("message", "type", "code"))
            fine &= "param" in error and len(text) < 4000
        fine &= not any(folder in text for folder in folders) and "\x1b" not in text
        if not fine:
            sent = b"".join(shot.parts)
            wrong.append({"kind": kind, "status": reply.status, "sent": sent[:100].decode("latin-1") + " ... "
                          + sent.partition(b"\r\n\r\n")[2][:300].decode("latin-1"), "got": text[:300]})  # fmt: skip

    async def siege(server):
        memory = []
        for kind in KINDS:
            begin = time.monotonic()
            for shot in shots(kind, per_kind):
                try:
                    reply = await fire(server.port, shot)
                except ConnectionRefusedError:
                    raise SystemExit(
                        f"The server has died in {kind}, {server.process.poll()}: {server.said[-3000:]}"
                        f" The last was {last}."
                    ) from None
                except TimeoutError:
                    wrong.append({"kind": kind, "status": "no end in 60 s", "sent": str(shot.parts[0][:600])})
                    continue
                last = kind, shot.parts[0][:500], reply
                judge(kind, shot, reply)
                statuses[reply.status] = statuses.get(reply.status, 0) + 1
                seconds.append((round(reply.seconds, 2), kind))
            by_kind[kind] = round(time.monotonic() - begin, 2)
            memory.append(round(server.status()))
        return {"shots": len(seconds), "kinds": len(KINDS), "statuses": statuses, "wrong": len(wrong),
                "slowest": sorted(seconds)[-6:], "rss_by_kind_mb": memory, "kind_s": by_kind}  # fmt: skip

    await server.ask(*FIXED[2])
    found = await besieged(server, siege)
    for each in wrong:
        print(json.dumps({"part": "hostile", "wrong": each}), flush=True)
    return found


PARTS = {"cancels": cancels, "hostile": hostile}


def main():
    options = _options()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in options.part or PARTS:
        with Server(options.model, *options.flag) as server:
            print(
                json.dumps({"part": name, **asyncio.run(PARTS[name](server, options.requests))}), flush=True
            )


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument(
        "--flag", action="append", default=[], help="of gencli serve, such as --flag=--max-batch=4"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
