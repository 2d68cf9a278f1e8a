"""A server in a process of its own, and what a siege costs it. Linux only: it reads /proc."""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.server.hostile import CHAT, TEXT
from tests.server.raw import Shot, fire, post

__all__ = ["FIXED", "SCHEMA", "Server", "besieged"]
_MEMORY = 10 << 30  # bytes of the server's address space: what takes more fails, and not the machine
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]}
FIXED = (
    ({"prompt": "Once upon a time", "seed": 7, "max_tokens": 30}, TEXT),
    ({"messages": [{"role": "user", "content": "Hello"}], "seed": 8, "max_tokens": 20, "n": 2}, CHAT),
    ({"prompt": "a", "json_schema": SCHEMA, "seed": 9, "max_tokens": 40}, TEXT),
)


class Server:
    """A server in a process of its own; asks for the key k."""

    def __init__(self, model, *flags, launcher=("-m", "gencli")):
        command = [
            sys.executable, *launcher, "serve", "--model", model, "--port", "0", "--threads", "2", *flags,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "GENCLI_API_KEY": "k"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
        )  # fmt: skip
        self.model, self.lines, self.port = model, [], 0
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
        waits, same, refused = [], True, 0
        while not done.is_set():
            begin = time.monotonic()
            try:
                reply = await server.ask(*FIXED[0])
            except (OSError, TimeoutError) as error:
                same = f"{type(error).__name__}: {error}"
            else:
                refused += reply.status == 429
                if reply.status != 429 and same is True:
                    is_equal = reply.status == 200 and reply.first == before[0][0]
                    same = True if is_equal else f"status {reply.status}, or another text"
            waits.append((round(time.monotonic() - begin, 2), found.get("now", "")))
            await asyncio.sleep(0.1)
        return {"bystander_slowest": sorted(waits)[-3:], "bystander_asked": len(waits),
                "bystander_429": refused,
                "texts_during": same}  # fmt: skip

    found = {}
    other = asyncio.create_task(bystander())
    begin = time.monotonic()
    await siege(found)
    seconds = time.monotonic() - begin
    done.set()
    found |= await other
    begin = time.monotonic()
    answer = await server.ask(*FIXED[0])
    found |= {"answer_s": round(time.monotonic() - begin, 2), "answer_status": answer.status}
    found["idle_s"] = round(await server.idle(), 2)
    found |= {
        "seconds": round(seconds, 1), "texts_after": await server.texts() == before,
        "gauges": await server.gauges(),
        "rss_mb": [round(memory), round(server.status())], "peak_mb": round(server.status("VmHWM")),
        "files": [files, server.files], "threads": server.status("Threads"), "stderr": server.said[-2000:],
    }  # fmt: skip
    return found
