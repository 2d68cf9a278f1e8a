"""The process that renders templates with Jinja2's sandbox and a memory limit.

`python -m gencli.templates.worker` reads an Order and answers with a Rendered (see processors.child).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gencli.templates.environment import render_here
from gencli.templates.messages import MAX_MEMORY, Rendered
from processors.child import limit_memory, serve

__all__: list[str] = []

_STACK = 8 << 20


def _answer(question: Callable[[], Any], reply: Callable[[Any], None]) -> None:
    question()  # the first question only waits for the start
    limit_memory(MAX_MEMORY)
    reply(Rendered())
    while True:
        reply(render_here(question()))


if __name__ == "__main__":
    serve(_answer, stack=_STACK)
