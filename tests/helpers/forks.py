"""A server that has imported what gencli imports, and forks a process for each command, which waits for none.

A client (see `quick`) hands over its arguments, folder, environment and three streams. Signals that it gets
are passed on, and it ends as the command does; where it is killed, so is the command.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from select import select

IMPORTED = (
    "gencli.batch.run",
    "gencli.cli.commands.generate",
    "gencli.cli.commands.talk",
    "gencli.models.hf",
    "transformers.models.llama.modeling_llama",
)


def serve(path):
    """Accept clients until stdin ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork that looked through all this would copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
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


def run(arguments, folder, environ, streams):
    """The command, as a process of its own would run it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["gencli", *arguments]
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    from gencli.__main__ import main

    code = main()
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # to take all modules apart would take a second


if __name__ == "__main__":
    serve(sys.argv[1])
