"""`gencli` as a program that starts at once, for tests that are not about how a process of it starts."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

__all__ = ["end_quick", "quick_gencli", "quick_path"]

ROOT = Path(__file__).parents[2]
CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until they can be passed on
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
body = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(body).to_bytes(4)], [0, 1, 2])
server.sendall(body)
for number in SIGNALS:
    signal.signal(number, lambda number, _: server.send(bytes([number])))
signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
code = int(server.recv(9))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
_running = ExitStack()


@cache
def quick_gencli():
    """The path of the program; the real one where the system lacks what it takes."""
    if not hasattr(os, "pidfd_open"):
        return Path(sys.executable).with_name("gencli")
    folder = Path(tempfile.mkdtemp(prefix="gencli-"))
    _running.callback(shutil.rmtree, folder)
    path = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.helpers.forks", path],
        stdin=subprocess.PIPE,  # it ends when this is closed, however this process ends
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    _running.enter_context(server)
    assert server.stdout.readline() == b"ready\n"
    program = folder / "gencli"
    program.write_text(CLIENT.format(python=sys.executable, path=path))
    program.chmod(0o755)
    return program


def quick_path():
    """An environment in which shells find it, and the Python that runs the tests."""
    folders = [str(quick_gencli().parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {"PATH": os.pathsep.join(folders)}


def end_quick():
    """End the server, if there is one."""
    _running.close()
