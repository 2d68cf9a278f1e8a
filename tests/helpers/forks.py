"""A server that has imported what gencli imports, and forks a process for each command, which waits for none.

A client (see `quick`) hands over its words, folder, environment and three streams. The first word is the
program, `gencli` or `python`. Signals that it gets are passed on, and it ends as the command does; where it
is killed, so is the command.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from select import select

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "gencli.batch.row_engines",
    "gencli.batch.run_batch",
    "gencli.cli.commands.batch",
    "gencli.cli.progress_bars",
    "gencli.cli.commands.compare",
    "gencli.cli.commands.generate",
    "gencli.cli.commands.run",
    "gencli.cli.commands.serve",
    "gencli.cli.commands.talk",
    "gencli.cli.experiment_runs",
    "gencli.models.decoder.decoder",
    "gencli.models.other_runners",
    "gencli.models.files.gguf_weights",
    "gencli.text.gguf_tokenizer",
    "gencli.models.hf_runner",
    "gencli.models.model_memory",
    "gencli.runtime.comparing",
    "gencli.batch.score_files",
    "gencli.structured.schema_check",
    "gencli.structured.backend_choice",
    "gencli.structured.schema_validator",
    "gencli.text.fast_tokenizer",
    "platformdirs.unix",
    "processors.fused",
    "processors.grammar.llguidance",
    "processors.grammar.xgrammar",
    "shellingham",
    "transformers.models.llama.modeling_llama",
    "xgrammar",
    *(f"processors.stages.{path.stem}" for path in (ROOT / "processors" / "stages").glob("[a-z]*.py")),
)


def serve(path, python):
    """Accept clients until stdin ends. `python` is a client, for what compiles grammars for a command."""
    for name in IMPORTED:
        importlib.import_module(name)
    run = importlib.import_module("gencli.cli.app")._click_command("run")
    run.commands["run"].make_context(
        "run", ["hi"]
    )  # to build what reads the options takes a tenth of a second
    child = importlib.import_module("processors.child")
    child._command = quick_command(child._command, lambda: python)
    gc.collect()
    gc.freeze()  # a fork that looked through all this would copy it
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                keep(client)
            client.close()


def quick_command(command, python):
    """The command of a child of a module: that of `python()` for the module that imports torch."""
    heavy = "processors.grammar.compile_worker"
    return lambda module: [str(python()), "-m", module] if module == heavy else command(module)


def reap():
    """Wait for the keepers that have ended, so that what they took counts as time of the suite."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def keep(client):
    """Run the client's command in one more fork, and tell the client how that ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    body = b""
    while len(body) < int.from_bytes(size):
        body += client.recv(1 << 20)
    if (command := os.fork()) == 0:
        client.close()
        run(*json.loads(body), streams)
    for stream in streams:
        os.close(stream)
    end = os.pidfd_open(command)
    while end not in (ready := select([client, end], [], [])[0]):
        number = client.recv(1) if client in ready else b""
        os.kill(command, number[0] if number else signal.SIGKILL)
        if not number:
            break
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with suppress(OSError):  # the client is gone
        client.sendall(str(code).encode())
    os._exit(0)


def run(words, folder, environ, streams):
    """The command, as a process of its own would run it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = words
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    code = PROGRAMS[words[0]]()
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # to take all modules apart would take a second


def gencli():
    """What `gencli ARGUMENTS` does; its exit code."""
    from gencli.__main__ import main

    return main()


def python():
    """What `python -m MODULE ARGUMENTS` or `python FILE ARGUMENTS` does; its exit code."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]
    del sys.argv[0]
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, str):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


PROGRAMS = {"gencli": gencli, "python": python}


if __name__ == "__main__":
    serve(*sys.argv[1:])
