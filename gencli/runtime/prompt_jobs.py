"""The jobs of prompts given by a program, each with its own sampling parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gencli.config.job import Job, notices
from gencli.config.jobs import Jobs
from gencli.config.requests import chat_notices
from gencli.config.sampling_params import SamplingParams, params_layer
from gencli.config.settings import Settings
from gencli.errors import UsageError
from gencli.plugins.notices import adapter_notices
from gencli.runtime.grammars import Grammars
from gencli.runtime.models import Loaded, batch_notices
from processors.base import Compiler

__all__ = ["Params", "PromptJobs"]

Params = SamplingParams | Sequence[SamplingParams] | None  # parameters for all prompts, or one for each


class PromptJobs:
    """Makes the jobs of prompts, and collects the notices about them.

    `settings`: the layer below the sampling parameters. `notices`: in order of occurrence, each once.
    """

    def __init__(self, settings: Settings, loaded: Loaded, compiler: Compiler) -> None:
        self._jobs, self._loaded = Jobs(settings, params_layer), loaded
        self._grammars = Grammars(compiler, retries_late=True)
        self.notices: dict[str, None] = {}

    @property
    def base(self) -> Job:
        """The job of a prompt without values of its own."""
        return self._jobs.base

    def make(
        self, texts: Sequence[str], params: Params, values: Mapping[str, Any], *, is_chat: bool = False
    ) -> list[Job]:
        """Return the job of each prompt, with its grammar compiled."""
        is_one = params is None or isinstance(params, SamplingParams)
        each: list[Any] = [params] * len(texts) if is_one else list(params or ())
        if len(each) != len(texts):
            raise UsageError(
                f"There are {len(each)} SamplingParams for {len(texts)} prompts. Give one, or one for each."
            )
        changed = [(own or SamplingParams()).replaced(**values) for own in each]
        jobs = [self._jobs.job(own, is_chat=is_chat) for own in changed]
        for job, text in zip(jobs, texts, strict=True):
            self.note(notices(job, [text], has_rows=True))  # plug-ins may be used by other requests
            self.note(chat_notices(job, self._loaded.tokenizer))
            self.note(adapter_notices([name for name, _ in job.chain], job.registry))
            if any(name not in text for name in job.untold_tools):
                self.note(["The prompt does not name the tools, so the model does not know of them."])
        if sum(job.num_drawn for job in jobs) > 1 or any(job.is_drafted for job in jobs):
            self.note(batch_notices(self._loaded))
        return [self._constrained(job) for job in jobs]

    def _constrained(self, job: Job) -> Job:
        """Return the job with its compiled grammar; a fallback to another back end is a notice."""
        compiled = self._grammars.compiled(job)
        if compiled is not None:
            self.note(compiled.notices)
        return self._grammars.ready(job)

    def note(self, texts: Iterable[str]) -> None:
        """Add notices; a known notice keeps its position."""
        self.notices |= dict.fromkeys(texts)
