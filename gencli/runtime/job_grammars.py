"""The grammars that the requests of an engine ask for, each compiled once."""

from __future__ import annotations

from gencli.config.job import Job
from gencli.config.structure import OutputSpec
from gencli.errors import ConfigError
from gencli.runtime.grammars import Compiled, compile_plan
from gencli.runtime.structure_cache import PerSpec
from processors.base import Compiler

__all__ = ["Grammars"]


class Grammars:
    """Compiles a grammar when the first request asks for it. What does not compile fails all that do."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._found = PerSpec(self._compile)

    def ready(self, job: Job) -> Job:
        """The job, held inside its grammar if it has one. Raises ConfigError."""
        compiled = self.compiled(job)
        return job if compiled is None else job.on(compiled.variant.constraint)

    def compiled(self, job: Job) -> Compiled | None:
        """The grammar of a job; None without a structure. Raises ConfigError."""
        found = self._found(job.structure)
        if isinstance(found, ConfigError):
            raise found
        return found

    def _compile(self, structure: OutputSpec | None) -> Compiled | ConfigError | None:
        try:
            return None if structure is None else compile_plan(structure.plan, self._compiler)
        except ConfigError as error:
            return error
