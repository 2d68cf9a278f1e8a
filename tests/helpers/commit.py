"""The commit that is tested, which chooses what a test takes of more cases than one push has time for."""

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["commit", "drawn"]

# Taken out of the environment, as gencli refuses a variable that belongs to no option.
GIVEN = os.environ.pop("GENCLI_COMMIT", "")


@cache
def commit():
    """The environment variable GENCLI_COMMIT, which repeats a choice, or the commit that is checked out."""
    command, folder = ["git", "rev-parse", "HEAD"], Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return GIVEN or "without git"
    return GIVEN or done.stdout.strip() or "without git"


def drawn(*words):
    """A number of these words that another commit changes."""
    text = " ".join([commit(), *words])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
