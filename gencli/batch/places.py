"""The output and journal files of a batch, and the rules for files that exist already."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gencli.batch.fingerprint import differences
from gencli.batch.journal import Journal, journal_path, read_header
from gencli.batch.outputs.output import Output
from gencli.batch.plan import Plan
from gencli.errors import UsageError
from gencli.files import new_file

__all__ = ["Places"]


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of the output and of its journal."""

    output: Path
    journal: Path

    @classmethod
    def of(cls, output: Output) -> Places | None:
        """Return the paths of an output; None for stdout, devices and pipes, which have no journal."""
        if output.path is None or not (_is_ordinary(path := output.path.resolve())):
            return None
        return cls(path, journal_path(path))

    def is_complete(self, plan: Plan) -> bool:
        """Return whether `resume` has nothing to do: the output exists and the journal does not."""
        return bool(plan["resume"]) and self._exists() and not self.journal.exists()

    def claim(self, plan: Plan) -> None:
        """Raise UsageError if output or journal exist and the plan neither resumes nor overwrites.

        Overwriting creates the journal immediately, so an old output is never mistaken for the new one.
        """
        if plan["overwrite"]:
            try:
                os.close(new_file(self.journal))
            except OSError as error:
                raise UsageError(f"{self.journal} cannot be written: {error.strerror}.") from error
        if plan["resume"] or plan["overwrite"]:
            return
        if read_header(self.journal) is not None:
            raise UsageError(
                f"{self.journal} exists: a run was interrupted, or some of its rows failed.",
                hint="`resume` continues it, `overwrite` starts a new run.",
            )
        if self._exists():
            raise UsageError(f"{self.output} exists already.", hint="`overwrite` replaces it.")

    def open(self, fingerprint: Mapping[str, Any], *, company: Collection[str], is_free: bool) -> Journal:
        """Return the existing journal or a new one.

        Raises UsageError that lists the values changed since it began.

        `company`: names of values that determine which texts share a forward pass; they may change if
        `is_free`.
        """
        header = read_header(self.journal)
        changed = differences(header["fingerprint"], fingerprint) if header else {}
        if is_free:
            changed = {name: said for name, said in changed.items() if name not in company}
        if changed:
            reason, way = "", "start a new run with `overwrite`"
            if changed.keys() <= set(company):
                reason = " In this number format that may change texts."
                way = "continue anyway with `allow_other_batch`"
            raise UsageError(
                f"{self.journal} belongs to another run: {'; '.join(changed.values())}.{reason}",
                hint=f"Undo the change and `resume`, or {way}.",
            )
        return Journal(self.journal, {"fingerprint": fingerprint})

    def _exists(self) -> bool:
        is_folder = self.output.is_dir()
        return any(self.output.iterdir()) if is_folder else self.output.exists()


def _is_ordinary(path: Path) -> bool:
    return not path.exists() or path.is_file() or path.is_dir()
