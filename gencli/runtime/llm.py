"""The Python interface: load a model once, generate whole or as a stream, with any options."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

import torch

from gencli.config.job import Job
from gencli.config.layers import gather_layer
from gencli.config.options.drafts import NO_DRAFTER
from gencli.config.options.run import OPTIONS
from gencli.config.peers import meant_option
from gencli.config.requests import encode_prompt
from gencli.config.sampling_params import SamplingParams
from gencli.config.settings import Layer
from gencli.core.events import Event
from gencli.engine.engine import Engine
from gencli.errors import GencliWarning, UsageError
from gencli.models.model_runner import ModelSpec
from gencli.plugins.registry import make_registry
from gencli.results.rate import Meter
from gencli.runtime.bar import Bar, state_of
from gencli.runtime.completion import Completion, Completions
from gencli.runtime.grammars import grammar_env, make_compiler
from gencli.runtime.habits import OF_LLM, missing
from gencli.runtime.models import load, model_notices
from gencli.runtime.one_stream import OneStream
from gencli.runtime.prompt_jobs import Params, PromptJobs
from gencli.runtime.wiring import make_engine, model_choice
from gencli.scoring.items import read_item
from gencli.scoring.options import CHAIN_KEYS
from gencli.scoring.scorer import Scorer, Terms, make_convention
from gencli.scoring.scores import MODES, Score
from gencli.scoring.windows import CONVENTIONS
from gencli.templates.chat_templates import Message, check_messages, render_conversation
from gencli.text.escapes import shown
from gencli.text.tokenizer import Tokenizer
from processors.base import Processor
from processors.rng import derive

__all__ = ["LLM"]

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
        given = {"model": model, **options}
        layer = Layer.of("LLM", given, {key: key for key in given})
        self.settings = gather_layer(layer, registry=registry)
        if self.settings["threads"] is not None:
            torch.set_num_threads(self.settings["threads"])
        # Any request may use guidance, so each sample may have a second lane; an unused lane takes no memory.
        self._loaded = load(
            replace(model_choice(self.settings), companions=True, rows=self.settings["max_batch"])
        )
        self._compiler = make_compiler(grammar_env(self._loaded), self.settings["grammar_timeout"])
        self._engine = make_engine(self._loaded, self.settings, self._compiler, registry=registry)
        self._stream = OneStream(self._engine, self._loaded.tokenizer)
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
        self,
        messages: Sequence[Any],
        params: Params = None,
        *,
        progress: bool | None = None,
        **values: Any,
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
        yield from self._stream.events(jobs, ids)
        self._warn()

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
        and `stride` define how texts are cut (see gencli.scoring.windows); `top` alternatives are kept for
        each token. With `mode` processed the scores are computed under the chain of `params` and `values`;
        the mode raw accepts neither. `progress`: as in `generate`. Raises UsageError for an item that cannot
        be scored.
        """
        is_one = isinstance(items, str | tuple | Mapping)
        wanted = [read_item(item) for item in ([items] if is_one else items)]
        self._stream.check_idle()
        spec = self.spec
        how = make_convention(convention, spec, self.tokenizer, window=window, stride=stride)
        terms = self._terms(mode, params, values)
        found = list[Score]()
        with Bar(len(wanted), lambda now: (len(found), ""), progress) as bar:
            for score in Scorer(self._engine, spec, self.tokenizer, how, top=top).scores(wanted, terms):
                found.append(score)
                bar.tick()
        self._warn()
        return found[0] if is_one else found

    def _terms(self, mode: MODES, params: SamplingParams | None, values: Mapping[str, Any]) -> Terms:
        """Return the settings of scoring. Raises UsageError for options that do not affect scores."""
        given = (params or SamplingParams()).replaced(**values)
        for key in given:
            if mode == "raw" or key not in CHAIN_KEYS | {"seed", "stages"}:
                has_part = "`mode` = processed" if key in CHAIN_KEYS else "no score"
                raise UsageError(f"`{key}` has no part in these scores, but in {has_part}.")
        if mode == "raw":
            return Terms()
        (job,) = self._jobs.make([""], params, values)
        return Terms(job, derive(job.seed, 0), given.get("max_tokens"))

    def close(self) -> None:
        """Stop the threads and processes that compile grammars."""
        self._compiler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return the model and how it runs, and the chain of a call without values."""
        spec, chain = self.spec, str(self._jobs.base.chain)
        said = [repr(self.settings["model"]), str(spec.dtype).removeprefix("torch.")]
        said += [spec.quantization] if spec.quantization else []
        said += [f"device={str(spec.device)!r}", f"context={spec.context}"]
        said += [f"max_batch={self.settings['max_batch']}"]
        said += [f"chain={shown(chain, 120)}"] if chain else []
        drafter = self._jobs.base.drafting.drafter
        said += [f"draft={drafter!r}"] if drafter != NO_DRAFTER else []
        return f"LLM({', '.join(said)})"

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
        self,
        texts: Sequence[str],
        jobs: Sequence[Job],
        ids: Sequence[tuple[int, ...]],
        progress: bool | None,
    ) -> list[Completion]:
        found = Completions(texts, ids, self.tokenizer)
        most = max((job.limits.max_tokens for job in jobs), default=0)
        total = sum(job.n for job in jobs)
        meter = Meter(total, most)
        with Bar(total, state_of(meter), progress) as bar:
            for event in self._stream.events(jobs, ids):
                found.add(event)
                meter.add(event, time.monotonic())
                bar.tick()
        return found.done()
