"""`gencli` and Python as programs that start at once, for tests that are not about how a process starts."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

__all__ = ["end_quick", "quick_gencli", "quick_path", "quick_python"]

ROOT = Path(__file__).parents[2]
CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until they can be passed on
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
body = json.dumps([[{name!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode()
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
def _folder():
    """Where the programs are; None where the system lacks what they take."""
    if not hasattr(os, "pidfd_open"):
        return None
    folder = Path(tempfile.mkdtemp(prefix="gencli-"))
    _running.callback(shutil.rmtree, folder)
    path, python = str(folder / "socket"), folder / "libraries" / "python"
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.helpers.forks", path, str(python)],
        stdin=subprocess.PIPE,  # it ends when this is closed, however this process ends
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    _running.enter_context(server)
    assert server.stdout.readline() == b"ready\n"
    python.parent.mkdir()  # a folder of its own, as shells look for `gencli` in the other one
    for program in (folder / "gencli", python):
        program.write_text(CLIENT.format(python=sys.executable, name=program.name, path=path))
        program.chmod(0o755)
    return folder


def quick_gencli():
    """The path of `gencli`; of the real one where the system lacks what it takes."""
    folder = _folder()
    return folder / "gencli" if folder else Path(sys.executable).with_name("gencli")


def quick_python():
    """The path of a Python that runs a file, or a module with `-m`; the real one where there is no other."""
    folder = _folder()
    return folder / "libraries" / "python" if folder else Path(sys.executable)


def quick_path():
    """An environment in which shells find it, and the Python that runs the tests."""
    folders = [str(quick_gencli().parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {"PATH": os.pathsep.join(folders)}


def end_quick():
    """End the server, if there is one."""
    _running.close()
