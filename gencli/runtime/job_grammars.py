"""The grammars of an engine's requests, each compiled once."""

from __future__ import annotations

from gencli.config.job import Job
from gencli.errors import ConfigError
from gencli.runtime.grammars import Compiled, compile_plan
from gencli.runtime.structure_cache import PerSpec
from gencli.structured.output_spec import OutputSpec
from processors.base import Compiler

__all__ = ["Grammars"]


class Grammars:
    """Compile a grammar at its first request. If that fails, all requests for the grammar fail."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._found = PerSpec(self._compile)

    def ready(self, job: Job) -> Job:
        """Return the job, constrained to its grammar if it has one. Raises ConfigError."""
        compiled = self.compiled(job)
        return job if compiled is None else job.on(compiled.variant.constraint)

    def compiled(self, job: Job) -> Compiled | None:
        """Return the grammar of a job; None without a structure. Raises ConfigError."""
        found = self._found(job.structure)
        if isinstance(found, ConfigError):
            raise found
        return found

    def _compile(self, structure: OutputSpec | None) -> Compiled | ConfigError | None:
        try:
            return None if structure is None else compile_plan(structure.plan, self._compiler)
        except ConfigError as error:
            return error
