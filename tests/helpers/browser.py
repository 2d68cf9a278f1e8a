"""A tab of headless Chromium, driven by the debugging protocol over two pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_WAIT = """new Promise((done, fail) => {
  const end = Date.now() + 60000;
  (function look() {
    try { const found = %s; if (found) return done(found); } catch (error) {}
    Date.now() > end ? fail(new Error(document.body.innerText)) : setTimeout(look, 20);
  })();
})"""
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36}
_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """The tab; `events` are the messages that answered no call, such as what the console said."""

    def __init__(self, folder: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe"
        command = f"exec {CHROMIUM} {flags} --user-data-dir={folder} 3<&{to_read} 4>&{to_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self.events: list[dict[str, Any]] = []
        self._numbers, self._held, self._session = count(1), b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            part = os.read(self._from, 1 << 16)
            assert part, "Chromium has ended"
            self._held += part
        first, _, self._held = self._held.partition(b"\0")
        return json.loads(first)

    def until(self, expression: str) -> Any:
        """Wait until a JavaScript expression is true; return it."""
        return self._evaluate(_WAIT % expression)

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression is now."""
        return self._evaluate(expression)

    def _evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]["exception"]["description"]
        return found["result"].get("value")

    def do(self, code: str) -> None:
        """Run statements."""
        self.until(f"(() => {{ {code}; return true; }})()")

    def press(self, key: str, **more: Any) -> None:
        """Press a key, named as in `KeyboardEvent.key`."""
        if key in _CODES:
            more.setdefault("windowsVirtualKeyCode", _CODES[key])
        elif len(key) == 1:
            more.setdefault("text", key)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def close(self) -> None:
        """End Chromium."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
