"""The SASS instructions of a compiled kernel, by the functions of its source that they come from.

A path names the functions of this project from the kernel on, such as `_kernel/_of_blocks/_of_mass`; what
comes from Triton's own functions belongs to their caller. How often a path runs is for the reader to say.
"""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.compiled.aot import ROOT, TOOLS, compiled

__all__ = ["counted"]

_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_CODE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)")


def counted(module, build, target):
    """Counter of (path, opcode), without NOP and EXIT."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled(module, build, target).asm["cubin"])
        told = subprocess.run(
            [TOOLS / "nvdisasm", "-c", "-gi", path], capture_output=True, text=True, check=True
        )
    found, chain, is_open = Counter(), (), False
    for line in told.stdout.splitlines():
        if "//## File" in line:
            place = _PLACE.search(line).groups()
            chain = (*chain, place) if is_open else (place,)
            is_open = "inlined at" in line
        elif code := _CODE.match(line):
            is_open = False
            if code[1] not in ("NOP", "EXIT"):
                found[_path(chain), code[1]] += 1
    return found


def _path(chain):
    """The functions of places from the innermost to the kernel, as a path from the kernel on."""
    mine = [(name, line) for name, line in chain if str(ROOT) in name]
    return "/".join(_function(name, int(line)) for name, line in reversed(mine))


@cache
def _functions(name):
    tree = ast.parse(Path(name).read_text(encoding="utf-8"))
    return [(one.lineno, one.end_lineno, one.name) for one in tree.body if isinstance(one, ast.FunctionDef)]


def _function(name, line):
    return next((one for first, last, one in _functions(name) if first <= line <= last), "?")
