"""Plugins from packages and files: found, named by their source, refused when a name is taken."""

import subprocess
import sys


def test_listing_what_is_built_in_needs_no_torch():
    code = """
import sys
from gencli.cli.app import main
main(["stages", "list"]); main(["stages", "show", "top_k"])
sys.exit("torch" in sys.modules)
"""
    env = {"GENCLI_NO_PLUGINS": "1", "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "Formula" in done.stdout
