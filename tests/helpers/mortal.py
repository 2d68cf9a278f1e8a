"""A stage that changes no text, says which process runs it, and kills one process once."""

from pathlib import Path

__all__ = ["Mortal"]

_PLUGIN = '''
import os, signal
from dataclasses import dataclass
from pathlib import Path
from processors import Params, Phase, Processor, param

@dataclass(frozen=True, slots=True)
class MortalParams(Params):
    """How long it lives."""
    steps: int = param(0, "Steps to live; 0 is off.", ge=0)

class Mortal(Processor[MortalParams]):
    """Ends its process."""
    name, phase, Params = "mortal", Phase.ADJUST, MortalParams
    count = 0

    def apply(self, logits, rows):
        Mortal.count += 1
        folder = Path(os.environ["MORTAL_FOLDER"])
        (folder / f"{os.getpid()}.pid").touch()
        if Mortal.count >= self.columns.gather("steps", rows).min() and not (folder / "mark").exists():
            (folder / "mark").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return logits
'''


class Mortal:
    """The stage `mortal`, a plugin in a folder. The first process that takes a row's number of steps dies.

    `env`: the variables that processes need. `plugin`: the path for `plugin`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "mortal"
        self._folder.mkdir()
        self.plugin = self._folder / "mortal.py"
        self.plugin.write_text(_PLUGIN)
        self.env = {"MORTAL_FOLDER": str(self._folder)}

    @property
    def has_killed(self) -> bool:
        """Whether a process has died of it."""
        return (self._folder / "mark").exists()

    def pids(self) -> set[int]:
        """Return the processes that ran the stage since the last call."""
        found = set(self._folder.glob("*.pid"))
        for path in found:
            path.unlink()
        return {int(path.stem) for path in found}
