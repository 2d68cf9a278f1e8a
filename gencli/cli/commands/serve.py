"""`gencli serve`: load a model and answer OpenAI's API over HTTP."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gencli.cli.stderr import Stderr, interrupts, open_browser
from gencli.cli.usage import Page
from gencli.errors import UsageError
from gencli.runtime.machine import importing, quiet_libraries, set_wait
from gencli.server.serve_options import SERVE_OPTIONS
from gencli.server.served_models import ServePlan, is_loopback, make_plan

if TYPE_CHECKING:
    from gencli.server.served_models import Models

PAGE = Page(
    """\
Usage: gencli serve [OPTIONS]

Answer the API of OpenAI over HTTP with local models: chat, completions, models;
also tokenize, the chain, metrics. The other options are defaults of requests:
    gencli serve --model tiny --port 8000 --temperature 0.8
    curl localhost:8000/v1/completions -H 'Content-Type: application/json' \\
      -d '{"prompt": "Once upon a time", "seed": 7}'
""",
    SERVE_OPTIONS,
    everyday=tuple(
        "model host port api_key_file allow_origin served_name open max_batch max_queue preset temperature "
        "top_p max_tokens quantize device".split()
    ),
    examples=(
        "gencli serve -m model.gguf --port 8000",
        "gencli serve -m model.gguf --open",
        "gencli serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt",
    ),
)


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Serve until a signal, and return the exit code."""
    for name in ("starlette", "uvicorn"):
        if find_spec(name) is None:
            raise UsageError(
                f"gencli serve needs {name}, which is not installed.",
                hint="Install it with: pip install 'gencli[serve]'",
            )
    plan = make_plan(flags, os.environ)
    set_wait(plan.settings["wait"], os.environ)  # before torch is imported
    with quiet_libraries(is_on="debug" not in flags):
        _serve(plan)
    return 0


def _serve(plan: ServePlan) -> None:
    from gencli.server.listen import bind, listen

    stderr = Stderr(is_quiet=plan.settings["quiet"])
    stderr.notice(*dict.fromkeys(text for each in plan.models.values() for text in each.notices()))
    with (
        interrupts(signal.SIGINT, signal.SIGTERM) as early,
        bind(plan.host, plan.port) as listener,
        ExitStack() as stack,
    ):
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        names = ", ".join(plan.models)

        def load() -> Models:
            with stderr.starting(), importing():
                from gencli.server.serving import load_models
            return load_models(plan, stderr, stack)

        def say_ready() -> None:
            stderr.say(f"{names} {'answer' if len(plan.models) > 1 else 'answers'} at {address}/v1")
            if plan.has_page:
                threading.Thread(target=show, daemon=True).start()

        def show() -> None:
            # A wildcard address is replaced by the loopback address.
            page = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:") + "/"
            if not open_browser(page):
                stderr.notice(f"No browser could be opened; open {page} in one.")

        stderr.say(f"Listening at {address}, loading {names} ...")
        if not is_loopback(plan.host) and not plan.conditions.rules.key:
            stderr.notice(f"{address} can be reached from other machines, and requires no key.")
        listen(load, plan.conditions.rules, listener, on_ready=say_ready, on_early_signal=early)
