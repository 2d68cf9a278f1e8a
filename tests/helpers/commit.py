"""The commit that is tested, which chooses what a test takes of more cases than one push has time for."""

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["commit", "drawn"]


@cache
def commit():
    """The environment variable GENCLI_COMMIT, which repeats a choice, or the commit that is checked out."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        checked_out = done.stdout.strip()
    except FileNotFoundError:
        checked_out = ""
    return os.environ.get("GENCLI_COMMIT") or checked_out or "without git"


def drawn(*words):
    """A number of these words that another commit changes."""
    return int.from_bytes(hashlib.blake2b(" ".join([commit(), *words]).encode(), digest_size=8).digest())
