"""The Python interface: load a model once, generate whole or as a stream, with any options."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, overload

import torch

from gencli.config.job import (
    DRAFTED_ROWS,
    Job,
    Jobs,
    SamplingParams,
    chat_notices,
    encode_prompt,
    make_request,
    notices,
    params_layer,
)
from gencli.config.layers import gather_layer
from gencli.config.option_names import meant_option
from gencli.config.run_options import OPTIONS
from gencli.config.settings import Settings, SettingsLayer
from gencli.core.events import Event
from gencli.core.request import NO_DRAFTER
from gencli.engine.engine import Engine
from gencli.errors import GencliWarning, UsageError
from gencli.models.model_runner import ModelSpec
from gencli.plugins.plugin_registry import adapter_notices, make_registry
from gencli.results.run_results import Meter, PromptRow
from gencli.runtime.compiled_grammars import Grammars, RetryingEngine, grammar_env, make_compiler
from gencli.runtime.completion import OF_LLM, Bar, Completion, Completions, missing, state_of
from gencli.runtime.model_loading import Loaded, batch_notices, load, model_notices
from gencli.runtime.wiring import make_engine, model_choice
from gencli.scoring.scorer import Terms, TextScorer, make_convention, read_item
from gencli.scoring.text_scores import CHAIN_KEYS, CONVENTIONS, MODES, Score
from gencli.templates.chat_templates import Message, check_messages, render_conversation
from gencli.text.escapes import shown
from gencli.text.tokenizer import Tokenizer
from processors.base import Compiler, Processor
from processors.rng import derive

_Events = Generator[Event, None, None]
_KEYS = frozenset(
    {entry.key for entry in OPTIONS if entry.section == "Model"} - {"model", "download", "offline", "wait"}
) | {"draft", "contrast", "grammar_timeout"}  # fmt: skip


class LLM:
    """A loaded model and an engine on it.

        llm = LLM("tiny")
        for out in llm.generate(["Once", "Twice"], SamplingParams(temperature=0.7, max_tokens=64, seed=1)):
            print(out.text, out.finish_reason)

    `options` are the model options of `gencli run`: dtype, device, threads, max_batch, draft, contrast, ...
    `plugins` name your own stages and drafters, as in "path.py:Class", or are classes of stages. An LLM is
    not thread-safe. A model of the hub must be in the local cache: `gencli models pull NAME` fetches it. Each
    notice is issued once as a GencliWarning.

    Raises UsageError for an unknown option or a value out of bounds, ModelError for a model that cannot be
    loaded.
    """

    def __init__(
        self, model: str = "tiny", *, plugins: Sequence[str | type[Processor[Any]]] = (), **options: Any
    ) -> None:
        for key in options:
            if key not in _KEYS:
                near = meant_option(key, {name: name for name in _KEYS})
                raise UsageError(f"LLM has no option {key!r}. {near}".strip())
        registry = make_registry(plugins)
        values = {"model": model, **options}
        layer = SettingsLayer.of("LLM", values, {key: key for key in values})
        self.settings = gather_layer(layer, registry=registry)
        if self.settings["threads"] is not None:
            torch.set_num_threads(self.settings["threads"])
        # Any request may use guidance, so each sample may have a second lane; an unused lane takes no memory.
        rows = self.settings["max_batch"] * (1 if self.settings["draft"] == NO_DRAFTER else DRAFTED_ROWS)
        self._loaded = load(replace(model_choice(self.settings), companions=True, rows=rows))
        self._compiler = make_compiler(grammar_env(self._loaded), self.settings["grammar_timeout"])
        self._engine = make_engine(self._loaded, self.settings, self._compiler, registry=registry)
        self._attempts = RetryingEngine(self._engine)
        self._num_requests, self._is_busy = 0, False
        self._jobs = PromptJobs(self.settings, self._loaded, self._compiler)
        self._jobs.note((*self.settings.notices(), *model_notices(self._loaded)))
        self._warned: set[str] = set()
        self._warn()

    @property
    def engine(self) -> Engine:
        """The engine, for your own requests: submit(Request), run()."""
        return self._engine

    @property
    def spec(self) -> ModelSpec:
        """Properties of the loaded model."""
        return self._loaded.runner.spec

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._loaded.tokenizer

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about the model and the requests so far: values without effect, limits, fallbacks."""
        return (*self._jobs.notices, *self._engine.notices)

    @overload
    def generate(
        self, prompts: str, params: Params = None, *, progress: bool | None = ..., **values: Any
    ) -> Completion: ...
    @overload
    def generate(
        self, prompts: Sequence[str], params: Params = None, *, progress: bool | None = ..., **values: Any
    ) -> list[Completion]: ...
    def generate(
        self,
        prompts: str | Sequence[str],
        params: Params = None,
        *,
        progress: bool | None = None,
        **values: Any,
    ) -> Completion | list[Completion]:
        """Return the completions of the prompts in order; one completion for a single prompt.

        `params` apply to all prompts, or are a sequence with one for each; `values` override fields.
        `progress`: whether a bar is drawn on stderr; by default it is, from the first second on, where
        stderr is a terminal or a notebook. Raises UsageError or ProcessorsError for an invalid request,
        before anything is generated. A sample that fails later has its `error` set, and the others continue.
        """
        texts, jobs, ids = self._encoded(prompts, params, values)
        completions = self._completions(texts, jobs, ids, progress)
        self._warn()
        return completions[0] if isinstance(prompts, str) else completions

    def generate_from_ids(
        self,
        prompts: Sequence[Sequence[int]],
        params: Params = None,
        *,
        progress: bool | None = None,
        **values: Any,
    ) -> list[Completion]:
        """Return the completions of prompts given as token ids; `prompt` is the decoded text.

        Else as `generate`.
        """
        texts = [self.tokenizer.decode(list(ids), skip_special=False) for ids in prompts]
        jobs = self._jobs.make(texts, params, values)
        if any(job.instructions.before for job in jobs):
            raise UsageError(
                "`schema_in_prompt` needs a prompt of text, not of token ids.", hint="Leave it out."
            )
        completions = self._completions(texts, jobs, [tuple(ids) for ids in prompts], progress)
        self._warn()
        return completions

    @overload
    def chat(
        self,
        messages: Sequence[Message],
        params: Params = None,
        *,
        progress: bool | None = ...,
        **values: Any,
    ) -> Completion: ...
    @overload
    def chat(
        self,
        messages: Sequence[Sequence[Message]],
        params: Params = None,
        *,
        progress: bool | None = ...,
        **values: Any,
    ) -> list[Completion]: ...
    def chat(
        self, messages: Sequence[Any], params: Params = None, *, progress: bool | None = None, **values: Any
    ) -> Completion | list[Completion]:
        """Return the answers to conversations in order, or to a single one.

        A conversation is a sequence of messages with `role` and `content`, rendered by the model's chat
        template. Raises UsageError for a wrong message, ModelError for a model without a chat template,
        otherwise as `generate`.
        """
        is_one = isinstance(messages, str) or (bool(messages) and isinstance(messages[0], Mapping))
        conversations = [check_messages(each) for each in ([messages] if is_one else messages)]
        jobs = self._jobs.make([""] * len(conversations), params, values, is_chat=True)
        texts = [
            render_conversation(
                self.tokenizer, conversation, system=job.system, instructions=job.instructions
            )
            for conversation, job in zip(conversations, jobs, strict=True)
        ]
        ids = [tuple(self.tokenizer.encode(text, special=False)) for text in texts]
        completions = self._completions(texts, jobs, ids, progress)
        self._warn()
        return completions[0] if is_one else completions

    def stream(self, prompts: str | Sequence[str], params: Params = None, **values: Any) -> _Events:
        """Yield events while generating: Token, Reading, Finish and Error.

        `event.request` is the index of the prompt ("0", "1", ...), `event.sample` the index of the sample.
        Closing the generator early ends its requests. Only one stream may be open at a time (UsageError).
        """
        _, jobs, ids = self._encoded(prompts, params, values)
        self._warn()
        return self._streamed(jobs, ids)

    def _streamed(self, jobs: Sequence[Job], ids: Sequence[tuple[int, ...]]) -> _Events:
        yield from self._events(jobs, ids)
        self._warn()

    def _events(self, jobs: Sequence[Job], ids: Sequence[tuple[int, ...]]) -> _Events:
        """Submit the requests, and yield their events with prompt indices as request ids.

        Invalid outputs are retried. Closing the generator early ends its requests.
        """
        self._check_idle()
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
                with suppress(Exception):  # the original error is raised instead
                    self._engine.interrupt()
                    for _ in self._attempts.run(is_merged=True):
                        pass
            self._is_busy = False

    def _check_idle(self) -> None:
        if self._is_busy:
            raise UsageError("A stream of this LLM is open. Read it to its end, or close it.")

    @overload
    def score(
        self,
        items: str | tuple[str, str] | Mapping[str, Any],
        *,
        convention: CONVENTIONS = ...,
        window: int | None = ...,
        stride: int | None = ...,
        top: int = ...,
        mode: MODES = ...,
        params: SamplingParams | None = ...,
        progress: bool | None = ...,
        **values: Any,
    ) -> Score: ...
    @overload
    def score(
        self,
        items: list[Any],
        *,
        convention: CONVENTIONS = ...,
        window: int | None = ...,
        stride: int | None = ...,
        top: int = ...,
        mode: MODES = ...,
        params: SamplingParams | None = ...,
        progress: bool | None = ...,
        **values: Any,
    ) -> list[Score]: ...
    def score(
        self,
        items: Any,
        *,
        convention: CONVENTIONS = "lm-eval",
        window: int | None = None,
        stride: int | None = None,
        top: int = 0,
        mode: MODES = "raw",
        params: SamplingParams | None = None,
        progress: bool | None = None,
        **values: Any,
    ) -> Score | list[Score]:
        """Return the scores of items in order; one score for a single item.

        An item is a text; a pair (context, continuation) as a tuple; or a mapping with `text`, with `context`
        and `continuation` or `choices`, or with `messages` that end with an answer. `convention`, `window`
        and `stride` define how texts are cut (gencli.scoring.text_scores); `top` alternatives are kept for
        each token. With `mode` processed the scores are computed under the chain of `params` and `values`;
        the mode raw accepts neither. `progress`: as in `generate`. Raises UsageError for an item that cannot
        be scored.
        """
        is_one = isinstance(items, str | tuple | Mapping)
        wanted = [read_item(item) for item in ([items] if is_one else items)]
        self._check_idle()
        spec = self.spec
        how = make_convention(convention, spec, self.tokenizer, window=window, stride=stride)
        terms = self._terms(mode, params, values)
        scores = list[Score]()
        with Bar(len(wanted), lambda now: (len(scores), ""), progress) as bar:
            for score in TextScorer(self._engine, spec, self.tokenizer, how, top=top).scores(wanted, terms):
                scores.append(score)
                bar.tick()
        self._warn()
        return scores[0] if is_one else scores

    def _terms(self, mode: MODES, params: SamplingParams | None, values: Mapping[str, Any]) -> Terms:
        """Return the settings of scoring. Raises UsageError for options that do not affect scores."""
        options = (params or SamplingParams()).replaced(**values)
        for key in options:
            if mode == "raw" or key not in CHAIN_KEYS | {"seed", "stages"}:
                hint = "Give `mode` = processed." if key in CHAIN_KEYS else ""
                raise UsageError(f"`{key}` does not affect these scores.", hint=hint)
        if mode == "raw":
            return Terms()
        (job,) = self._jobs.make([""], params, values)
        return Terms(job, derive(job.seed, 0), options.get("max_tokens"))

    def close(self) -> None:
        """Stop the threads and processes that compile grammars."""
        self._compiler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return the model and how it runs, and the chain of a call without values."""
        spec, chain = self.spec, str(self._jobs.base.chain)
        parts = [repr(self.settings["model"]), str(spec.dtype).removeprefix("torch.")]
        parts += [spec.quantization] if spec.quantization else []
        parts += [f"device={str(spec.device)!r}", f"context={spec.context}"]
        parts += [f"max_batch={self.settings['max_batch']}"]
        parts += [f"chain={shown(chain, 120)}"] if chain else []
        drafter = self._jobs.base.drafting.drafter
        parts += [f"draft={drafter!r}"] if drafter != NO_DRAFTER else []
        return f"LLM({', '.join(parts)})"

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, OF_LLM)

    def _encoded(
        self, prompts: str | Sequence[str], params: Params, values: Mapping[str, Any]
    ) -> tuple[list[str], list[Job], list[tuple[int, ...]]]:
        """Return the prompts, their jobs and their token ids."""
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        jobs = self._jobs.make(texts, params, values)
        ids = [encode_prompt(job, text, self.tokenizer) for job, text in zip(jobs, texts, strict=True)]
        return texts, jobs, ids

    def _warn(self) -> None:
        """Issue the new notices as warnings of the code that called the public method."""
        for text in self.notices:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, GencliWarning, stacklevel=3)

    def _completions(
        self, texts: Sequence[str], jobs: Sequence[Job], ids: Sequence[tuple[int, ...]], progress: bool | None
    ) -> list[Completion]:
        prompts = enumerate(zip(texts, jobs, ids, strict=True))
        rows = (PromptRow(str(n), text, job.n, prompt_ids=read) for n, (text, job, read) in prompts)
        completions = Completions(rows, self.tokenizer)
        max_tokens = max((job.limits.max_tokens for job in jobs), default=0)
        total = sum(job.n for job in jobs)
        meter = Meter(total, max_tokens)
        with Bar(total, state_of(meter), progress) as bar:
            for event in self._events(jobs, ids):
                completions.add(event)
                meter.add(event, time.monotonic())
                bar.tick()
        return completions.done()


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
        samplings: list[Any] = [params] * len(texts) if is_one else list(params or ())
        if (count := len(samplings)) != len(texts):
            raise UsageError(
                f"There are {count} SamplingParams for {len(texts)} prompts. Give one, or one for each."
            )
        changed = [(sampling or SamplingParams()).replaced(**values) for sampling in samplings]
        jobs = [self._jobs.job(sampling, is_chat=is_chat) for sampling in changed]
        for job, text in zip(jobs, texts, strict=True):
            self.note(notices(job, [text], has_rows=True))  # plug-ins may be used by other requests
            self.note(chat_notices(job, self._loaded.tokenizer))
            self.note(adapter_notices([name for name, _ in job.chain], job.registry))
            if any(name not in text for name in job.untold_tools):
                self.note(["The prompt does not name the tools, so the model does not know of them."])
        if sum(job.num_drawn for job in jobs) > 1 or any(job.is_drafted for job in jobs):
            self.note(batch_notices(self._loaded))
        for job in jobs:
            if (compiled := self._grammars.compiled(job)) is not None:
                self.note(compiled.notices)  # such as a fallback to another back end
        return [self._grammars.ready(job) for job in jobs]

    def note(self, texts: Iterable[str]) -> None:
        """Add notices; a known notice keeps its position."""
        self.notices |= dict.fromkeys(texts)
