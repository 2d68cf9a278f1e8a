"""The options of `gencli serve`, its own and those shared with a run, and the public names of served
models, without folders of this machine. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gencli.config.option import MAX_BATCH, MAX_SAMPLES, MAX_SECONDS, Option, read_batch
from gencli.config.run_options import OPTIONS
from gencli.errors import UsageError
from processors.params import Bounds

OWN: tuple[Option, ...] = (
    Option(("--host",), str, "Address to listen on. Only this machine reaches the default.", "Server",
           "127.0.0.1", metavar="ADDRESS"),
    Option(("--port",), int, "Port to listen on; 0 takes a free one.", "Server", 8000,
           Bounds(ge=0, le=65535)),
    Option(("--api-key-file",), str, "Every route but /health and the page / asks for the key in this file; "
           "the variable GENCLI_API_KEY may hold it instead.", "Server", metavar="FILE"),
    Option(("--allow-host",), str, "A name of this machine that requests may use, beside localhost and "
           "addresses; * allows all.", "Server", (), many=True, metavar="NAME"),
    Option(("--allow-origin",), str, "A page of this origin may ask from a browser, as in "
           "http://localhost:3000; * allows all.", "Server", (), many=True, metavar="ORIGIN"),
    Option(("--served-name",), str, "Name of a model in requests and replies; by default that of its folder. "
           "Given again for the next `model`.", "Server", (), many=True, metavar="NAME"),
    Option(("--open",), bool, "Open the page of the server in the browser when the models are loaded.",
           "Server", False),
    Option(("--max-queue",), int, "Texts that may wait beside those that run; beyond it requests get a 429.",
           "Server", 256, Bounds(ge=0, le=MAX_SAMPLES)),
    Option(("--queue-timeout",), float, "Seconds until the first token of a request; then it gets a 504.",
           "Server", 120.0, Bounds(gt=0, le=MAX_SECONDS)),
    Option(("--shutdown-timeout",), float, "Seconds for running requests after Ctrl-C or SIGTERM.", "Server",
           10.0, Bounds(ge=0, le=MAX_SECONDS)),
    Option(("--lenient",), bool, "Drop unknown fields of requests, and name them in the reply, instead of "
           "refusing the request.", "Server", False),
    Option(("--max-trace",), int, "Largest `trace` of a request, which explains its tokens; 0 refuses them. "
           "20 by default, and 0 with a watermark, as a trace shows what the mark prefers.", "Server",
           bounds=Bounds(ge=0, le=100)),
    Option(("--model", "-m"), str, "A model, as for gencli run; tiny without it. Given again for each "
           "further one; a request names one of them, or gets the first.", "Model", (), many=True,
           metavar="NAME"),
    Option(("--max-batch",), str, "Texts of a model that run at once; auto plans the number from the free "
           "memory.", "Model", 8, Bounds(ge=1, le=MAX_BATCH), read=read_batch, metavar="N|auto"),
)  # fmt: skip

_FOREIGN = {
    *("chat", "raw", "template", "vars", "file", "tp", "download", "debug", "logprobs", "prompt_logprobs"),
    *(entry.key for entry in OWN),
}
SERVE_OPTIONS: tuple[Option, ...] = (
    *OWN,
    *(
        entry
        for entry in OPTIONS
        if entry.key not in _FOREIGN and (entry.section != "Output" or entry.key == "quiet")
    ),
    *(entry for entry in OPTIONS if entry.key == "debug"),
)


def public_name(model: str) -> str:
    """Return a model's name without the folders above it."""
    is_path = Path(model).exists() or model.startswith((".", "/", "~"))
    return Path(model).name if is_path else model


def served_names(models: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the name of each model: the one in `names` at its index, else its public name.

    Raises UsageError for more names than models, and for two models with one name.
    """
    if len(names) > len(models):
        message = f"`served_name` is given {len(names)} times, but `model` only {len(models)} times."
        raise UsageError(message, hint="The first name is that of the first model, and so on.")
    names = [*names, *map(public_name, models[len(names) :])]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"Two models have the name {twice}, so a request cannot choose between them."
        raise UsageError(message, hint="Give each a `served_name`, in the order of the models.")
    return names
