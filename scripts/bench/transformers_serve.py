"""`gencli serve`, `gencli batch` and `transformers serve` under the same load, in turns, as a table.

    python scripts/bench/transformers_serve.py [WAY ...] [--model FOLDER] [--python PYTHON] [--turns N] ...

PYTHON is an interpreter with transformers[serving] (fastapi, pydantic, openai); without it the server of
transformers is left out. Both servers stream completions of the same prompts with the same numbers of tokens,
drawn from the whole distribution at temperature 1. transformers streams words, not tokens, so its times
between events are of longer pieces. Time counts from the loaded model on, without a warm-up, for all of them.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from serve import (
    batch_command,
    cost_of,
    in_turns,
    make_tasks,
    measure_batch,
    measure_serve,
    put_load,
    serve_command,
    share_of,
)

TINY = Path(__file__).parent.parent / "gencli" / "assets" / "tiny"


def main():
    options = _options()
    load = make_tasks(options.requests)
    folder = str(TINY) if options.model == "tiny" else options.model
    size = {"max_batch": options.max_batch, "threads": options.threads}
    gencli = {"clients": options.clients, "rate": options.rate}
    ways = {
        "serve": lambda: measure_serve(serve_command(folder, **size), load, **gencli),
        "batch": lambda: measure_batch(lambda path: batch_command(path, folder, **size), load),
    }
    for name, flags in (
        ("transformers", ()),
        ("transformers --continuous-batching", ("--continuous-batching",)),
    ):
        if options.python is not None:
            ways[name] = lambda flags=flags: _transformers(options, folder, load, flags)
    found = in_turns({name: ways[name] for name in options.way or ways}, options.turns)
    for name, turns in found.items():
        print(json.dumps(asdict(cost_of(name, turns))), flush=True)
    for other in [name for name in found if name != "serve"]:
        print(f"serve / {other}: {share_of(found, 'serve', other):.2f} of its tokens per second")


def _transformers(options, folder, load, flags):
    with _server(options, folder, flags) as port:
        return put_load(
            "127.0.0.1", port, load, clients=options.clients, rate=options.rate,
            body=lambda task: _body(task, folder),
        )  # fmt: skip


def _body(task, folder):
    length = {"max_new_tokens": task.max_tokens, "min_new_tokens": task.max_tokens}
    config = {**length, "do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
    return {
        "model": folder, "prompt": task.prompt, "max_tokens": task.max_tokens, "stream": True,
        "generation_config": json.dumps(config),
    }  # fmt: skip


@contextmanager
def _server(options, folder, flags):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"import torch; torch.set_num_threads({options.threads})"
    code += "; from transformers.cli.transformers import main; main()"
    command = [
        options.python,
        "-c",
        code,
        "serve",
        folder,
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        *flags,
    ]
    command += ["--dtype", "float32", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(process, port)
            yield port
        finally:
            process.kill()


def _wait(process, port):
    """Wait until the model is loaded: /health answers before, the list of models names it."""
    for _ in range(3000):
        if process.poll() is not None:
            raise SystemExit("transformers serve has not started.")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("transformers serve has not answered in five minutes.")


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", nargs="*", help="serve, batch, transformers, ...; all of them without it")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--python", help="an interpreter with transformers[serving]")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
