"""One served model: loaded on a thread of its own, with its engine's thread, thread pools, and the
requests that are made of calls (checked options, chat template, tokens, compiled grammar). Requests are
made outside of the engine's thread and the event loop; several threads may use one Preparer. This
module has the imports that take seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Lock
from typing import Any, TypeVar

from gencli import __version__
from gencli.config.job import Job, Jobs, chat_notices, make_request, params_layer
from gencli.config.layers import with_chat_draw
from gencli.config.presets import load_presets
from gencli.config.run_options import PENALTY_STAGES
from gencli.config.settings import FLAG, Settings, SettingsLayer, resolve
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import ConfigError, UsageError
from gencli.helpers import Recent, once
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import Card, declared_template, read_card
from gencli.models.model_memory import Held, plan_capacity
from gencli.runtime.compiled_grammars import Grammars, RetryingEngine, grammar_env, make_compiler
from gencli.runtime.model_loading import Loaded, Reporter, check_memory
from gencli.runtime.wiring import load_model, make_engine, model_choice
from gencli.server.access import Conditions, check_call
from gencli.server.engine_thread import EngineOrder, EngineThread, api_error
from gencli.server.serve_options import public_name
from gencli.server.served_models import AdmissionControl, Metrics, Models, ServePlan
from gencli.server.wire_answers import Shape
from gencli.server.wire_calls import BODY_KEYS, Call, Prompt, Route, read_call
from gencli.server.wire_fields import ApiError, bad_field
from gencli.server.wire_vendors import UNLIMITED
from gencli.structured.output_spec import KINDS
from gencli.structured.tool_calls import ToolFormat, detect_format
from gencli.templates.chat_templates import render_conversation
from gencli.text.tokenizer import Infill, Tokenizer, infill_of
from processors.base import Compiler
from processors.grammar.compile_guards import DaemonPool
from processors.rng import derive

_FAKE = 64  # texts of the fake model, which needs no memory
_LANES = 2  # lanes of a sample: any request may be guided, and then has two


def load_models(plan: ServePlan, reporter: Reporter, stack: ExitStack) -> Models:
    """Return the loaded models; `stack` closes their resources.

    Raises ModelError; if the models do not fit into memory together, before any is loaded.
    """
    settings = list(plan.models.values())
    if plan.is_auto:
        batch = SettingsLayer.of(FLAG, {"max_batch": planned_batch(settings)})
        settings = [resolve(*model.layers, batch, registry=model.registry) for model in settings]
    if len(settings) > 1:
        check_memory(map(model_choice, settings))
    servings = []
    for name, model_settings in zip(plan.models, settings, strict=True):
        # On a thread that ends then: PyTorch gives each computing thread a team of OpenMP threads. If all
        # teams together have more threads than cores, libgomp lets no thread spin, which slows the engine
        # down by up to a half.
        rows = max(2, model_settings["max_batch"])
        with ThreadPoolExecutor(1, "loader") as thread:
            load = thread.submit(load_model, model_settings, reporter, companions=True, rows=rows)
        loaded, _ = load.result()
        compiler = make_compiler(grammar_env(loaded), model_settings["grammar_timeout"])
        stack.enter_context(closing(compiler))
        conditions, notice = plan.conditions, reporter.notice
        servings.append(Serving(model_settings, loaded, compiler, conditions, name=name, notice=notice))
    return Models(*servings)


def planned_batch(settings: Sequence[Settings]) -> int:
    """Return how many texts of full context length each model can run at once, all models in use.

    Raises UsageError for options with further models or devices, or a model that is not on this machine.
    """
    first = settings[0]
    for key in ("draft", "contrast", "device_map"):
        if first.is_given(key) and first[key] not in (None, "none"):
            message = f"`max_batch` = auto plans for models on one device, but {first.name(key)} is given."
            raise UsageError(message, hint="Give `max_batch` a number.")
    cards = list[Card]()
    for name in (model["model"] for model in settings if model["model"] != "fake"):
        if (folder := find_local(name)) is None:
            raise UsageError(f"`max_batch` = auto: {name} is not on this machine.")
        cards.append(read_card(folder))
    if not cards:
        return _FAKE
    planned = plan_capacity(
        [Held(card.folder.name if index else "", card, _LANES) for index, card in enumerate(cards)],
        tokens=max(card.context or 1 for card in cards),
        dtype=first["dtype"],
        kv_dtype=first["kv_dtype"],
        device=first["device"],
        quantize=first["quantize"],
    )
    return planned.max_batch


T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_THREADS = 4  # threads of each pool
_MAX_NOTICES = 1000  # of a model: texts of some have numbers of the request in them
_WINDOW = 8  # texts that may overtake one in the queue; people wait for them, unlike for rows of a batch


class Serving:
    """Owns the engine of one model, its thread and the pools. `start` and `stop` are for the event loop.

    Options of a call are read and prompts prepared on a pool; calls with a grammar have a pool of their own,
    so that slow grammars delay each other only. `notice` gets each notice for the operator once, the engine's
    too.
    """

    thread: EngineThread

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        compiler: Compiler,
        conditions: Conditions,
        *,
        name: str = "",
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.conditions = conditions
        self.spec, self.tokenizer = loaded.runner.spec, loaded.tokenizer
        self.settings = settings
        self._model = str(settings["model"])
        self.name = name or public_name(self._model)
        spec, grammars = self.spec, Grammars(compiler, retries_late=True)
        self._notice = notice = once(notice, limit=_MAX_NOTICES)
        self.preparer = Preparer(settings, loaded.tokenizer, grammars, context=spec.context, notice=notice)
        registry = self.preparer.registry
        self.engine: Engine = make_engine(loaded, settings, compiler, registry=registry, window=_WINDOW)
        self.admission = AdmissionControl(self.engine.limit + self.conditions.max_queue)
        self.metrics = Metrics()
        parts = [self.name, str(spec.dtype), spec.backend, spec.quantization, *spec.kernels]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        self.fingerprint = f"gencli-{__version__}-{digest[:10]}"
        self.created = time.time()
        self._quick = DaemonPool(_THREADS)
        self._slow = DaemonPool(_THREADS)

    def start(self) -> None:
        """Start the engine's thread, for the running event loop."""
        self.thread = EngineThread(RetryingEngine(self.engine), self._notice)
        self.thread.on_event = self.metrics.add

    def stop(self) -> None:
        self.thread.stop()
        self.thread.join(10)
        for pool in (self._quick, self._slow):
            pool.shutdown()

    def call(self, body: Any, route: Route) -> Call:
        """Return the call of a parsed body, within the size limits. Raises ApiError."""
        conditions, registry = self.conditions, self.preparer.registry
        call = read_call(body, route, registry=registry, is_lenient=conditions.is_lenient)
        check_call(call, conditions.limits, self.spec.context)
        return call

    async def beside(
        self, work: Callable[[], T], *, fields: Mapping[str, str] | None = None, is_slow: bool = False
    ) -> T:
        """Run work on a pool; its errors become ApiErrors. `fields`: the body's field of each option."""
        pool = self._slow if is_slow else self._quick
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except Exception as error:
            # `from error` would make an ApiError its own cause, and keep the body alive until a garbage
            # collection.
            raise self.error(error, fields) from None

    def error(self, error: BaseException, fields: Mapping[str, str] | None = None) -> ApiError:
        """Return an exception as an ApiError, without the model's path."""
        api: ApiError = api_error(error, fields)
        if api.code == "internal_error":  # the client gets only its type
            _LOG.error("A request has failed.", exc_info=error)
        message = api.message
        for path in {self._model, self.tokenizer.name}:
            if os.sep in path:
                message = message.replace(path, self.name)
        if message != api.message:
            return ApiError(api.status, message, param=api.param, code=api.code, headers=api.headers)
        return api

    @property
    def gauges(self) -> dict[str, float]:
        """Return current values, for /metrics."""
        admission = self.admission
        running = min(self.thread.num_open, round(self.engine.occupancy * self.engine.limit))
        return {
            "num_requests_running": running if self.thread.num_open else 0,
            "num_requests_waiting": max(0, admission.num_samples - running),
            "num_calls_open": admission.num_calls,
            "num_calls_refused": admission.num_refused,
            "max_batch": self.engine.limit,
        }


ORIGIN = "request"  # origin of values from a body
_SHORT = 16  # tokens of a completion without max_tokens, as in OpenAI's API; a chat may fill the context
_MAX_PRESETS = 64  # combinations of presets that are cached


@dataclass(frozen=True, slots=True)
class Prepared:
    """The orders of a call, and how their texts become answers, by the ids of their requests.

    `echoes`: the prompts as text and ids, if texts begin with them.
    """

    orders: tuple[EngineOrder, ...]
    shapes: Mapping[str, Shape]
    echoes: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Preparer:
    """Prepares calls for one model. `settings`: the server's, overridden by presets and bodies.

    `context`: the largest number of tokens of prompt and output. `notice` is called with notices for the
    operator.
    """

    def __init__(
        self,
        settings: Settings,
        tokenizer: Tokenizer,
        grammars: Grammars,
        *,
        context: int,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.tokenizer, self.context = tokenizer, context
        # A request with messages uses the template; for the other route it is disabled below.
        self._settings = resolve(("server", {"chat": True}), *settings.layers, registry=settings.registry)
        self._grammars = grammars
        self._jobs: Recent[tuple[tuple[str, ...], bool], tuple[Settings, Jobs]] = Recent(_MAX_PRESETS)
        self._encoding = Lock()
        self._notice = notice
        _, jobs = self._of_presets(())  # faults of the server's own options are reported here
        self.registry = jobs.base.registry

    @cached_property
    def tool_format(self) -> ToolFormat:
        return detect_format(*self._declared)[0]

    @cached_property
    def _declared(self) -> tuple[str | None, frozenset[str]]:
        return declared_template(self._settings["model"])

    @cached_property
    def infill(self) -> Infill | None:
        """The tokenizer's fill-in-the-middle tokens; None if it has none."""
        with self._encoding:
            return infill_of(self.tokenizer)

    def job(self, call: Call) -> Job:
        """Return the job of a call, without a compiled grammar. Raises the error of an invalid option."""
        settings, jobs = self._of_presets(call.presets, has_chat_draw=call.has_chat_draw)
        values = self._with_bias_ids(call.options.values)
        if not call.is_chat and "system" in values:
            raise bad_field(call.options.fields["system"], "system needs messages, not a prompt.")
        limit = values.get("max_tokens")
        if limit is None or limit == UNLIMITED:
            values.pop("max_tokens", None)
            if not settings.is_given("max_tokens"):
                is_short = limit is None and not call.is_chat
                values["max_tokens"] = _SHORT if is_short else self.context
        # Interfaces always send a window of penalties, which has no effect if no penalty is on.
        if call.options.fields.get("penalty_window", "penalty_window") != "penalty_window":
            keys = {"repetition_penalty", "frequency_penalty", "presence_penalty", "stages", "chain"}
            active = {name for name, _ in jobs.base.assembly.chain.active()}
            if not (keys & values.keys() or active.intersection(PENALTY_STAGES)):
                del values["penalty_window"]
        if "seed" not in values and settings["seed"] is None:
            values["seed"] = secrets.randbits(32)
        job = jobs.job(values, is_chat=call.is_chat)
        return replace(job, is_chat=call.is_chat)

    def _with_bias_ids(self, values: Mapping[str, Any]) -> dict[str, Any]:
        # As in llama.cpp, whose field has texts and pairs, each token of a text gets its number, and the
        # numbers of a token add up; `false` bans the tokens.
        options = dict(values)
        total, banned = dict[int, float](), list[int]()
        for key, number in options.pop("logit_bias", ()):
            for token in self.encode(key, special=False) if isinstance(key, str) else (key,):
                if number is False:
                    banned.append(token)
                else:
                    total[token] = total.get(token, 0) + number
        if total:
            options["logit_bias"] = [[token, number] for token, number in total.items()]
        if banned:
            before = options.get("suppress_ids", [])
            if not isinstance(before, list):
                raise bad_field("suppress_ids", "has to be a list beside logit_bias with a ban.")
            options["suppress_ids"] = [*before, *banned]
        return options

    def has_structure(self, call: Call) -> bool:
        """Whether the call may have a grammar, which is slow to prepare."""
        return bool(call.presets) or any(key in call.options.values for key in KINDS)

    def __call__(self, call: Call, name: str) -> Prepared:
        """Return the prepared call; its requests get the ids `name`-0, `name`-1, ..."""
        job = self._grammars.ready(self.job(call))
        prompts = [self._ids(call, prompt, job) for prompt in call.prompts]
        if not prompts:
            for text in chat_notices(job, self.tokenizer):
                self._notice(text)
            prompts = [self._fitting(self.encode(self.render(call, job), special=False), "messages", call)]
        if call.session and (len(prompts) > 1 or max(job.n, job.best_of or 1) > 1):
            fault = "A session continues one answer: send one prompt, and n = 1."
            raise ApiError(400, fault, param="session", code="invalid_value")
        if call.route == "responses" and job.n > 1:
            raise bad_field("n", f"is {job.n}, but a response has one answer.")
        orders = [
            EngineOrder(self._request(call, job, f"{name}-{index}", ids, index), job.structure)
            for index, ids in enumerate(prompts)
        ]
        shape = self.shape(call, job)
        if call.joined_by and any(order.request.marker for order in orders):
            fault = "asks for reasoning inside the content, but constrain_after separates it."
            raise bad_field(call.joined_by, fault, code="unsupported_value")
        echoes = (
            (job.instructions.before + prompt, ids)
            if isinstance(prompt, str)
            else (self.tokenizer.decode(ids, skip_special=False), ids)
            for prompt, ids in zip(call.prompts, prompts, strict=False)
        )
        requests = [order.request for order in orders]
        shapes = {
            request.id: replace(shape, marker=request.marker, has_reasoning=call.has_reasoning)
            for request in requests
        }
        return Prepared(tuple(orders), shapes, tuple(echoes) if call.echo else ())

    def _request(self, call: Call, job: Job, name: str, ids: tuple[int, ...], index: int) -> Request:
        seed = derive(job.seed, index)
        request = make_request(job, name, ids, seed, self.tokenizer, session=call.session)
        request = replace(request, priority=call.priority, salt=call.salt)
        if call.suffix and self.infill:
            stops = request.stops
            request = replace(request, stops=replace(stops, ids=(*stops.ids, *self.infill.ends)))
        scores = call.logprobs if call.echo else None
        scores = call.prompt_logprobs if scores is None else scores
        if call.is_score_only:
            limits = Limits(0, request.limits.max_time)
            scored = replace(request, n=1, beams=None, best_of=None, contrastive=None, limits=limits)
            return replace(scored, prompt_logprobs=scores or 0)
        return replace(request, logprobs=call.logprobs, prompt_logprobs=scores)

    def shape(self, call: Call, job: Job) -> Shape:
        """Return how the texts of a job become answers, but for the marker, which depends on the prompt."""
        structure = job.structure
        is_live = job.beams is None and job.best_of is None
        if structure is None:
            return Shape(is_live)
        has_tools = structure.kind == "tools" and call.is_chat
        return Shape(
            # A document beside tools may look like a call until it ends.
            is_live and not (structure.retries or structure.is_data or structure.has_answer),
            tools=self.tool_format if has_tools else None,
            has_only_calls=has_tools and structure.is_document and not structure.has_answer,
            has_answer=structure.has_answer,
            has_one_call=call.has_one_call,
            is_named=call.options.values.get("tool_choice") not in (None, "auto", "required"),
        )

    def encode(self, text: str, *, special: bool = True, is_plain: bool = False) -> tuple[int, ...]:
        """Return the ids of a text; one thread at a time, because some tokenizers are not thread-safe.

        `is_plain`: names of special tokens in the text are plain text.
        """
        with self._encoding:
            return tuple(self.tokenizer.encode(text, special=special, is_plain=is_plain))

    def render(self, call: Call, job: Job) -> str:
        """Return the conversation of a call rendered by the chat template."""
        if call.variables.get("documents") and "documents" not in (self._declared[0] or ""):
            raise bad_field("documents", "are given, but the model's chat template has no place for them.")
        return render_conversation(
            self.tokenizer,
            call.messages,
            system=job.system,
            instructions=job.instructions,
            variables=call.variables,
            is_continued=call.is_continued,
        )

    def _ids(self, call: Call, prompt: Prompt, job: Job) -> tuple[int, ...]:
        before = job.instructions.before
        if before and (call.suffix or not isinstance(prompt, str)):
            kind = "without a suffix" if call.suffix else "of text, not of token ids"
            raise bad_field("schema_in_prompt", f"needs a prompt {kind}.")
        if call.suffix and not isinstance(prompt, str):
            raise bad_field("suffix", "needs a prompt of text, not of token ids.")
        if not isinstance(prompt, str):
            wrong = next((token for token in prompt if not 0 <= token < self.tokenizer.vocab_size), None)
            if wrong is not None:
                last = self.tokenizer.vocab_size - 1
                raise bad_field("prompt", f"has the token id {wrong}, but ids are 0 to {last}.")
            ids = prompt
        elif call.suffix:
            if self.infill is None:
                fault = (
                    "is given, but the model's tokenizer has no tokens for filling a hole, such as "
                    "<|fim_prefix|>, <|fim_suffix|> and <|fim_middle|>. Leave it out."
                )
                raise bad_field("suffix", fault, code="unsupported_value")
            with self._encoding:
                ids = self.infill.prompt(self.tokenizer, prompt, call.suffix)
        else:
            ids = self.encode(before + prompt, special=call.has_special)
        return self._fitting(ids, "prompt", call)

    def _fitting(self, ids: tuple[int, ...], field: str, call: Call) -> tuple[int, ...]:
        if not ids:
            raise bad_field(field, "is empty: it has no tokens.")
        if call.longest is not None and len(ids) > call.longest[1]:
            name, limit = call.longest
            fault = f"is {limit}, but {field} has {len(ids)} tokens: this server cuts no prompt."
            raise bad_field(name, fault, code="unsupported_value")
        if len(ids) >= self.context:
            size = f"has {len(ids)} tokens, but the model takes {self.context} with the output"
            # Clients know the error by these words.
            raise bad_field(field, f"{size}: the prompt is too long.", code="context_length_exceeded")
        return ids

    def _of_presets(self, names: tuple[str, ...], *, has_chat_draw: bool = False) -> tuple[Settings, Jobs]:
        def make() -> tuple[Settings, Jobs]:
            settings = self._settings
            if names:
                try:
                    layers = load_presets(names, self.registry)
                except ConfigError as error:
                    raise ApiError(
                        400, error.message, param="preset", code="invalid_value", hint=error.hint
                    ) from None
                keys = BODY_KEYS | {"chat", "raw"}  # decided by the route
                for key in (key for layer in layers for key in layer.values if key not in keys):
                    message = f"A preset of a request cannot set {key}."
                    raise ApiError(400, message, param="preset", code="invalid_value")
                settings = resolve(*settings.layers, *layers, registry=settings.registry)
            if has_chat_draw:
                settings = with_chat_draw(settings, self.registry)
            return settings, Jobs(settings, partial(params_layer, origin=ORIGIN))

        return self._jobs.get((names, has_chat_draw), make)
