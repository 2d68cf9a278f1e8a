"""Write what each Triton kernel takes of the GPUs into tests/compiled: registers, spilled and shared bytes.

    PYTHONPATH=. python scripts/aot_table.py [MODULE ...]

A file says which kernels are built with which types; what changed since it was written (its digests tell) is
compiled, and its limits are written anew. Read the difference: a kernel that takes more than before needs a
reason.
"""

import json
import sys

from tests.compiled.aot import FOLDER, TARGETS, builds, digest, kernel_modules, known, taken


def main(names):
    """Write the limits of these modules, or of all."""
    for module in names or kernel_modules():
        found = builds(module)
        for name, build in found.items():
            build.setdefault("limits", {str(target): None for target in TARGETS})
            for target in TARGETS:
                if known(module, build, target) is None:
                    build["limits"][str(target)] = taken(module, build, target)
            build["digests"] = {str(target): digest(module, build, target) for target in TARGETS}
            print(module, name, build["limits"])
        path = FOLDER / f"{module}.json"
        path.write_text(_text(found), encoding="utf-8")


def _text(found):
    """The builds as JSON, one part of a build on a line."""
    parts = []
    for name, build in found.items():
        lines = [f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in build.items()]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


main(sys.argv[1:])
