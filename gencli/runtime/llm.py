"""A model from Python: load it once, generate with any options, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, overload

import torch

from gencli.config.job import Job, encode_prompt, make_request, notices
from gencli.config.jobs import Jobs
from gencli.config.layers import gather_layer
from gencli.config.options.run import OPTIONS
from gencli.config.peers import meant_option
from gencli.config.sampling_params import SamplingParams, params_layer
from gencli.config.settings import Layer
from gencli.core.events import Error, Event, Finish
from gencli.engine.engine import Engine
from gencli.errors import UsageError
from gencli.plugins.registry import make_registry
from gencli.results.completion import Completion
from gencli.runtime.attempts import RetryingEngine
from gencli.runtime.grammars import grammar_env, make_compiler
from gencli.runtime.job_grammars import Grammars
from gencli.runtime.models import load
from gencli.runtime.wiring import make_engine, model_choice
from gencli.text.tokenizer import Tokenizer
from processors.rng import derive

__all__ = ["LLM"]

_Message = Mapping[str, str]
_Params = SamplingParams | Sequence[SamplingParams] | None
_KEYS = frozenset(
    {entry.key for entry in OPTIONS if entry.section == "Model"} - {"model", "download", "offline"}
) | {"draft", "contrast", "grammar_timeout"}  # fmt: skip


class LLM:
    """A model that is loaded, and an engine on it.

        llm = LLM("tiny")
        for out in llm.generate(["Once", "Twice"], SamplingParams(temperature=0.7, max_tokens=64, seed=1)):
            print(out.text, out.finish_reason)

    `options` are those of `gencli run` that are about the model: dtype, device, threads, max_batch, draft,
    contrast, ... `plugins` name stages and drafters of your own, as in "path.py:Class". One thread uses an
    LLM at a time. A model of the hub has to be here: `gencli models pull NAME` fetches it.

    Raises UsageError for an option that does not exist or is out of bounds, ModelError for a model that
    cannot be loaded.
    """

    def __init__(self, model: str = "tiny", *, plugins: Sequence[str] = (), **options: Any) -> None:
        for key in options:
            if key not in _KEYS:
                near = meant_option(key, {name: name for name in _KEYS})
                raise UsageError(f"LLM has no option {key!r}. {near}".strip())
        registry = make_registry(plugins)
        given = {"model": model, **options}
        layer = Layer.of("LLM", given, {key: key for key in given})
        self.settings = gather_layer(layer, registry=registry)
        if self.settings["threads"] is not None:
            torch.set_num_threads(self.settings["threads"])
        # Any request may be guided, so there are lanes for companions; they take memory when they are used.
        self._loaded = load(replace(model_choice(self.settings), companions=True))
        self._compiler = make_compiler(grammar_env(self._loaded), self.settings["grammar_timeout"])
        self._engine = make_engine(self._loaded, self.settings, self._compiler, registry=registry)
        self._attempts, self._grammars = RetryingEngine(self._engine), Grammars(self._compiler)
        self._jobs = Jobs(self.settings, params_layer)
        self._num_requests, self._is_busy = 0, False
        self._notices: dict[str, None] = {}

    @property
    def engine(self) -> Engine:
        """The engine, for requests of your own: submit(Request), run()."""
        return self._engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._loaded.tokenizer

    @property
    def notices(self) -> tuple[str, ...]:
        """What there is to say of the requests so far: values that change nothing, limits, fallbacks."""
        return (*self._notices, *self._engine.notices)

    @overload
    def generate(self, prompts: str, params: _Params = None, **values: Any) -> Completion: ...
    @overload
    def generate(self, prompts: Sequence[str], params: _Params = None, **values: Any) -> list[Completion]: ...
    def generate(
        self, prompts: str | Sequence[str], params: _Params = None, **values: Any
    ) -> Completion | list[Completion]:
        """The completions of the prompts, in their order; of one prompt its own.

        `params` are those of all prompts, or a sequence with one for each; `values` change them. A request
        that is wrong raises UsageError or ProcessorsError, and nothing is generated. A sample that fails
        later has its `error`, and the others go on.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        jobs = self._ready(texts, params, values)
        ids = [encode_prompt(job, text, self.tokenizer) for job, text in zip(jobs, texts, strict=True)]
        found = self._completions(texts, jobs, ids)
        return found[0] if isinstance(prompts, str) else found

    @overload
    def chat(self, messages: Sequence[_Message], params: _Params = None, **values: Any) -> Completion: ...
    @overload
    def chat(
        self, messages: Sequence[Sequence[_Message]], params: _Params = None, **values: Any
    ) -> list[Completion]: ...
    def chat(
        self, messages: Sequence[Any], params: _Params = None, **values: Any
    ) -> Completion | list[Completion]:
        """The answers to conversations, or to one: messages with `role` and `content` each.

        They are put into the model's chat template; ModelError if it has none.
        """
        is_one = bool(messages) and isinstance(messages[0], Mapping)
        several: list[Sequence[_Message]] = [messages] if is_one else list(messages)
        jobs = self._ready([""] * len(several), params, values, is_chat=True)
        texts = [self._rendered(one, job) for one, job in zip(several, jobs, strict=True)]
        ids = [tuple(self.tokenizer.encode(text, special=False)) for text in texts]
        found = self._completions(texts, jobs, ids)
        return found[0] if is_one else found

    def stream(self, prompts: str | Sequence[str], params: _Params = None, **values: Any) -> Iterator[Event]:
        """The events of generating, as they come: Token, Reading, Finish and Error.

        `event.request` is the number of the prompt, from "0" on, `event.sample` that of the sample. A stream
        that is left early ends what it was generating; until then no other can begin.
        """
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        jobs = self._ready(texts, params, values)
        ids = [encode_prompt(job, text, self.tokenizer) for job, text in zip(jobs, texts, strict=True)]
        return self._events(jobs, ids)

    def close(self) -> None:
        """End the threads and processes that compile grammars."""
        self._compiler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(
        self, texts: Sequence[str], params: _Params, values: Mapping[str, Any], *, is_chat: bool = False
    ) -> list[Job]:
        """The job of each prompt, with its grammar compiled."""
        is_one = params is None or isinstance(params, SamplingParams)
        each: list[Any] = [params] * len(texts) if is_one else list(params or ())
        if len(each) != len(texts):
            raise UsageError(
                f"There are {len(each)} SamplingParams for {len(texts)} prompts. Give one, or one for each."
            )
        changed = [(one or SamplingParams()).replaced(**values) for one in each]
        jobs = [self._jobs.job(one, is_chat=is_chat) for one in changed]
        for job, text in zip(jobs, texts, strict=True):
            self._notices |= dict.fromkeys(notices(job, [text]))
        return [self._grammars.ready(job) for job in jobs]

    def _rendered(self, messages: Sequence[_Message], job: Job) -> str:
        has_system = bool(messages) and messages[0].get("role") in ("system", "developer")
        before = [{"role": "system", "content": job.system}] if job.system and not has_system else []
        tools = list(job.structure.tools) if job.structure else []
        return self.tokenizer.render_chat([*before, *messages], **({"tools": tools} if tools else {}))

    def _completions(
        self, texts: Sequence[str], jobs: Sequence[Job], ids: Sequence[tuple[int, ...]]
    ) -> list[Completion]:
        found: list[list[Finish | Error]] = [[] for _ in texts]
        for event in self._events(jobs, ids):
            if isinstance(event, Finish | Error):
                found[int(event.request)].append(event)
        ends = (sorted(one, key=lambda end: end.sample) for one in found)
        return [Completion.of(text, one) for text, one in zip(texts, ends, strict=True)]

    def _events(self, jobs: Sequence[Job], ids: Sequence[tuple[int, ...]]) -> Iterator[Event]:
        """Submit the requests, and tell their events under the prompts' numbers."""
        if self._is_busy:
            raise UsageError("A stream of this LLM is open. Read it to its end, or close it.")
        self._is_busy, is_whole, first = True, False, self._num_requests
        self._num_requests += len(jobs)
        try:
            for number, (job, prompt_ids) in enumerate(zip(jobs, ids, strict=True)):
                name, seed = str(first + number), derive(job.seed, number)
                request = make_request(job, name, prompt_ids, seed, self.tokenizer)
                self._attempts.submit(request, job.structure)
            for event in self._attempts.run():
                yield replace(event, request=str(int(event.request) - first))
            is_whole = True
        finally:
            if not is_whole:
                self._drain()
            self._is_busy = False

    def _drain(self) -> None:
        """End all that was submitted."""
        with suppress(Exception):  # the error that led here is the one to be seen
            self._engine.interrupt()
            for _ in self._attempts.run():
                pass
