"""What enforces a schema depends on the schema, the options and what is installed; never on the clock."""

import json
import os

SLOW_IMPORT = """
import sys, time

class Delay:
    def find_spec(self, name, path=None, target=None):
        if name == "xgrammar":
            time.sleep(3)

sys.meta_path.insert(0, Delay())
"""
# llguidance leaves this pattern to the final check.
ID = {"type": "string", "pattern": r"^(?!\.\.?(?:\/|$))[A-Za-z0-9_\-.~:@+]{1,20}$"}
SCHEMA = json.dumps({"type": "object", "properties": {"id": ID}, "required": ["id"]})


def test_a_back_end_that_is_slow_to_import_is_waited_for(spawn, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT)
    slow = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = ("run", "-m", "tiny", "--json-schema", SCHEMA, "--seed", 3, "--max-tokens", 60)
    ends = []
    for env in ({}, slow):
        process = spawn(*command, "--grammar-timeout", 2, "x", own=True, env=env)
        out, err = process.communicate(timeout=120)
        ends.append((process.returncode, out, err.count(b"is used instead")))
    assert ends[0] == ends[1]
    assert ends[0][0] == 0, err
