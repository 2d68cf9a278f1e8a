"""`gencli serve`: load a model and answer OpenAI's API over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from gencli.batch.plan import run_variables
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page
from gencli.cli.terminal.stderr import Stderr
from gencli.config.layers import gather
from gencli.config.settings import Settings
from gencli.errors import UsageError
from gencli.runtime.quiet import importing, quiet_libraries
from gencli.runtime.waiting import set_wait
from gencli.server.options import OWN, SERVE_OPTIONS

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli serve [OPTIONS]

Answer the API of OpenAI over HTTP with a local model: chat, completions, models;
also tokenize, the chain, metrics. The other options are defaults of requests:
    gencli serve --model tiny --port 8000 --temperature 0.8
    curl localhost:8000/v1/completions -H 'Content-Type: application/json' \\
      -d '{"prompt": "Once upon a time", "seed": 7}'
""",
    SERVE_OPTIONS,
)


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Serve until a signal, and return the exit code."""
    for name in ("starlette", "uvicorn"):
        if find_spec(name) is None:
            raise UsageError(
                f"gencli serve needs {name}, which is not installed.",
                hint="Install it with: pip install 'gencli[serve]'",
            )
    keys = {entry.key for entry in OWN}
    own = {entry.key: entry.value(given[entry.key]) if entry.key in given else entry.default for entry in OWN}
    shared = {key: value for key, value in given.items() if key not in keys}
    is_auto = own["max_batch"] == "auto" or os.environ.get("GENCLI_MAX_BATCH") == "auto"
    if "max_batch" in given and own["max_batch"] != "auto":
        shared["max_batch"], is_auto = own["max_batch"], False
    settings = gather(shared, run_variables(os.environ))
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with quiet_libraries(is_on="debug" not in given):
        return _serve(own, shared, settings, is_auto=is_auto)


def _serve(own: Mapping[str, Any], shared: dict[str, Any], settings: Settings, *, is_auto: bool) -> int:
    voice = Stderr(is_quiet=settings["quiet"])
    with voice.starting(), importing():
        from contextlib import closing

        from gencli.runtime.grammars import grammar_env, make_compiler
        from gencli.runtime.wiring import load_model
        from gencli.server.listen import bind, listen
        from gencli.server.models import Models
        from gencli.server.plan import conditions_of, is_loopback, planned_batch
        from gencli.server.serving import Serving

    conditions = conditions_of(own, settings, os.environ)
    if is_auto:
        settings = gather({**shared, "max_batch": planned_batch(settings)}, run_variables(os.environ))
    for text in settings.notices():
        voice.notice(text)
    with bind(own["host"], own["port"]) as listener:
        loaded, _ = load_model(settings, voice, companions=True, rows=max(2, settings["max_batch"]))
        with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
            serving = Serving(settings, loaded, compiler, conditions, name=own["served_name"] or "")
            host, port = listener.getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            if not is_loopback(own["host"]) and not conditions.rules.key:
                voice.notice(f"{address} can be reached from other machines, and asks for no key.")
            listen(Models.of(serving), listener, lambda: voice.say(f"{serving.name} answers at {address}/v1"))
    return 0
