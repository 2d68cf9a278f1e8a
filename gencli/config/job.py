"""The job of a run: its checked settings; jobs of many requests that override some of them, the requests
of a job, and `SamplingParams`, the options of one request in Python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from gencli.config.chain_assembly import (
    Assembly,
    assemble,
    greedy_cause,
    refuse_watermark,
    wanted_mark,
    watermark_notices,
)
from gencli.config.conflicts import refuse_conflicts, refuse_idle_conditions
from gencli.config.job_parts import build_output_spec, wanted_instructions
from gencli.config.option_names import meant_option
from gencli.config.presets import KEYS, read_values
from gencli.config.run_options import NO_AMATEUR, OPTIONS
from gencli.config.settings import CHAT_DEFAULT, Assigned, Settings, SettingsLayer, checked, resolve
from gencli.core.request import (
    NO_DRAFTER,
    Beams,
    Contrastive,
    Drafting,
    Guidance,
    LayerContrast,
    Limits,
    Request,
    Stops,
)
from gencli.core.tree_shapes import read_tree_shape
from gencli.errors import UsageError
from gencli.helpers import Recent
from gencli.plugins.plugin_registry import make_registry, plugin_notices
from gencli.structured.output_spec import OutputSpec, plan_notices
from gencli.templates.chat_templates import NOTHING, Instructions, render_conversation
from gencli.text.text_stream import check_pattern
from processors.catalog import Draw, Phase
from processors.chain import Chain, check_conditions, doubts
from processors.errors import ParamError, UnknownStage
from processors.registry import Registry, builtin_registry
from processors.request_values import MATCH, Constraint, Marker, Verification

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer


DRAFTED_ROWS = 4  # usual number of rows of a text with drafts in a decode step: its token and 3 draft tokens


@dataclass(frozen=True, slots=True)
class Job:
    """The settings that all prompts of a run share."""

    assembly: Assembly
    draw: Draw
    draw_origin: str
    seed: int
    n: int
    stops: Stops
    limits: Limits
    is_chat: bool = False
    system: str | None = None
    structure: OutputSpec | None = None
    instructions: Instructions = NOTHING
    beams: Beams | None = None
    best_of: int | None = None
    contrastive: Contrastive | None = None
    drafting: Drafting = field(default_factory=Drafting)
    guidance: Guidance = field(default_factory=Guidance)
    negative: str | None = None
    dola: LayerContrast | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    trace: int | None = None
    keep_logits: int = 0
    has_token_ids: bool = False  # of its records
    registry: Registry = field(default_factory=builtin_registry, compare=False)

    @property
    def is_greedy(self) -> bool:
        return self.resolved[1] == "greedy"

    @property
    def num_drawn(self) -> int:
        """Number of sequences that run for each prompt, including candidates that are not chosen."""
        if self.contrastive is not None:
            return self.contrastive.k
        return self.beams.width if self.beams else self.best_of or self.n

    @property
    def rows_each(self) -> int:
        """Usual number of rows of each text in a decode step: its token, drafts, and companion."""
        return (DRAFTED_ROWS if self.is_drafted else 1) * (2 if self.guidance.is_on else 1)

    @property
    def untold_tools(self) -> tuple[str, ...]:
        """Names of tools that nothing tells the model of, so that only the prompt can mention them."""
        tools = () if self.is_chat or self.instructions.is_raw_told else self.instructions.tools
        return tuple(str(tool.get("function", tool)["name"]) for tool in tools)

    @property
    def is_drafted(self) -> bool:
        """Whether there may be drafts, by a drafter or of forced text, under an exact policy."""
        has_jumps = self.structure is not None and self.structure.jump != "off"
        return self.drafting.verification.is_exact and (self.drafting.drafter != NO_DRAFTER or has_jumps)

    @property
    def method(self) -> str:
        """How tokens are chosen: "beams", "contrastive", "greedy", or the name of the sampler."""
        if self.beams is not None:
            return "beams"
        if self.contrastive is not None:
            return "contrastive"
        return self.resolved[1]

    def on(self, constraint: Constraint) -> Job:
        """Return the job with this grammar as its constraint."""
        after = self.structure.after if self.structure else ""
        chain = self.assembly.chain.with_stage("grammar", self.registry, **_grammar_fields(constraint, after))
        return replace(self, assembly=replace(self.assembly, chain=chain))

    @property
    def chain(self) -> Chain:
        """The stages that run, in order."""
        return self.resolved[0]

    @property
    def resolved(self) -> tuple[Chain, Draw]:
        """The stages that run, and the sampler."""
        return self.assembly.chain.resolved(self.draw, self.registry)


def make_job(settings: Settings) -> Job:
    """Return the job of the settings. Raises UsageError, or ProcessorsError for values of a stage."""
    registry = settings.registry or make_registry(settings["plugin"])
    structure = build_output_spec(settings)
    mark = wanted_mark(settings)
    grammar = None
    if structure is not None:
        grammar = _grammar_fields(structure.plan.variants[0].constraint, structure.after)
    assembly = assemble(settings, registry, grammar=grammar, mark=mark)
    refuse_watermark(settings, mark, greedy=greedy_cause(settings, assembly))
    refuse_conflicts(settings, assembly)
    refuse_idle_conditions(settings, assembly, structure)
    for pattern in settings["stop_regex"]:
        check_pattern(pattern)
    seed, tokens, width = settings["seed"], settings["draft_tokens"], settings["beams"]
    cutoff, layers = settings["contrast_alpha"], settings["dola"]
    guidance, beams, contrastive = Guidance(settings["guidance"]), None, None
    if settings["contrast"] != NO_AMATEUR:
        guidance = Guidance(1 + settings["contrast_beta"], cutoff=cutoff, amateur=settings["contrast"])
    if width:
        beams = Beams(width, settings["length_penalty"], settings["early_stopping"])
    if settings["contrastive_alpha"]:
        contrastive = Contrastive(settings["contrastive_alpha"], settings["contrastive_k"])
    choosing = next((key for key in ("beams", "contrastive_alpha") if settings[key]), "sampler")
    return Job(
        assembly=assembly,
        draw="greedy" if width else settings["sampler"],
        draw_origin=settings.where(choosing),
        seed=int.from_bytes(os.urandom(4), "little") if seed is None else seed,
        n=settings["n"],
        stops=Stops(
            ids=tuple(settings["stop_id"]),
            strings=tuple(settings["stop"]),
            patterns=tuple(settings["stop_regex"]),
            include=settings["include_stop"],
            loop=settings["loop"],
        ),
        limits=Limits(settings["max_tokens"], settings["max_time"]),
        is_chat=settings["chat"],
        system=settings["system"],
        structure=structure,
        instructions=wanted_instructions(settings, structure),
        beams=beams,
        best_of=settings["best_of"] or None,
        contrastive=contrastive,
        drafting=Drafting(
            settings["draft"],
            None if tokens == "auto" else tokens,
            settings["draft_min_p"],
            Verification(settings["verify"], settings["verify_threshold"] or MATCH.threshold),
            read_tree_shape(settings["draft_tree"]),
        ),
        guidance=guidance,
        dola=None if layers is None else LayerContrast(layers, cutoff),
        negative=settings["negative"],
        logprobs=settings["logprobs"],
        prompt_logprobs=settings["prompt_logprobs"],
        trace=None if settings["trace"] is None else settings["trace_top"],
        keep_logits=settings["keep_logits"] or 0,
        has_token_ids=settings["token_ids"],
        registry=registry,
    )


def _grammar_fields(constraint: Constraint, after: str) -> dict[str, Any]:
    names = ("text", "kind", "backend", "whitespace")
    return {**{name: getattr(constraint, name) for name in names}, "after": after}


def notices(job: Job, prompts: Sequence[str], *, has_rows: bool = False) -> Iterator[str]:
    """Yield the notices before a run; `has_rows` omits notices about plug-ins, because rows may use them."""
    if not job.is_chat and any(prompt.endswith(" ") for prompt in prompts):
        yield (
            "The prompt ends with a space. Most tokenizers put the space before the next word, "
            "so models seldom saw one there; the text is often better without it."
        )
    if job.instructions.notice:
        yield job.instructions.notice
    if job.structure is not None:
        if job.structure.kind != "json":  # no schema to report on
            yield from plan_notices(job.structure.plan)
        if job.structure.notice:
            yield job.structure.notice
        stops = {
            "stop": job.stops.strings,
            "stop_id": job.stops.ids,
            "stop_regex": job.stops.patterns,
            "include_stop": job.stops.include,
        }
        names = [f"`{key}`" for key, value in stops.items() if value and job.structure.is_document]
        if names:
            yield f"A document ends by itself; inside it these options have no effect: {', '.join(names)}."
    if not has_rows:
        active = list(dict.fromkeys(name for name, _ in job.assembly.chain.active()))
        yield from plugin_notices(active, job.registry, drafters=[job.drafting.drafter])
    yield from job.assembly.notices
    yield from doubts(job.chain, job.registry)
    yield from watermark_notices(job.chain)
    phase = job.registry.phase
    named = dict.fromkeys(name for name, _ in job.assembly.chain.active() if name != "temperature")
    of_chat = {name for name in named if all(v.origin == CHAT_DEFAULT for v in job.assembly.of_stage(name))}
    idle = [name for name in named if phase(name) >= Phase.SCALE and name not in of_chat]
    if job.is_greedy and idle:
        how = "A beam search draws nothing" if job.beams else "The draw is greedy"
        how = "The temperature is 0" if job.contrastive else how
        yield f"{how}, so these stages change nothing: {', '.join(idle)}."


# Fields of a request that are those of its job; the others have values of their own.
_OF_JOB = {entry.name for entry in fields(Request)} & {entry.name for entry in fields(Job)} - {"seed"}


def make_requests(job: Job, prompts: Sequence[str], tokenizer: Tokenizer) -> Iterator[Request]:
    """Yield a request for each prompt: index i gives the seed derive(seed, i) and the id str(i + 1)."""
    from processors.rng import derive

    for index, prompt in enumerate(prompts):
        ids, seed = encode_prompt(job, prompt, tokenizer), derive(job.seed, index)
        yield make_request(job, str(index + 1), ids, seed, tokenizer)


def make_request(
    job: Job, name: str, prompt_ids: tuple[int, ...], seed: int, tokenizer: Tokenizer, *, session: str = ""
) -> Request:
    """Return a request with the settings of the job."""
    guidance, after = job.guidance, job.structure.after if job.structure else ""
    if job.negative is not None:
        guidance = replace(guidance, negative=encode_prompt(job, job.negative, tokenizer))
    if after and Marker.of(after, tokenizer).ends(prompt_ids):
        after = ""  # the prompt has ended the reasoning
    same = {field: getattr(job, field) for field in _OF_JOB}
    request = Request(name, prompt_ids, job.assembly.chain, seed, session=session, marker=after, **same)
    if job.structure is None:
        return replace(request, guidance=guidance)
    structure = job.structure
    return replace(request, guidance=guidance, jump=structure.jump, finish_open=structure.finish_open)


def encode_prompt(job: Job, prompt: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the token ids of a prompt with the job's instructions, in the chat template if it is a chat."""
    if not job.is_chat:
        return tuple(tokenizer.encode(job.instructions.before + prompt))
    return chat_ids(prompt, tokenizer, job.system, job.instructions)


def chat_ids(
    prompt: str, tokenizer: Tokenizer, system: str | None = None, instructions: Instructions = NOTHING
) -> tuple[int, ...]:
    """Return the ids of a prompt as user message. Raises ModelError without a chat template."""
    messages = [{"role": "user", "content": prompt}]
    text = render_conversation(tokenizer, messages, system=system, instructions=instructions)
    return tuple(tokenizer.encode(text, special=False))


def chat_notices(job: Job, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return what the user should know about how conversations of the job are rendered."""
    return job.instructions.notices(tokenizer) if job.is_chat else ()


ReadLayer = Callable[[Mapping[str, Any], Registry], SettingsLayer]
_MAX_JOBS, _MAX_CHARS = 1024, 16 << 20  # cache limits: number of jobs, and characters of their options
_SHARED = ("Presets", "Model", "Output")  # sections of options for the whole run
# Options that a request may set, and the three keys of presets that hold stages.
REQUEST_KEYS = frozenset(key for key, entry in KEYS.items() if entry.section not in _SHARED) - {
    "template", "vars",
} | {"chain", "fields", "stages"}  # fmt: skip


def request_layer(values: Mapping[str, Any], registry: Registry, origin: str) -> SettingsLayer:
    """Return the values of a request as a layer of settings. Raises UsageError for the first invalid one."""
    preset = read_values(values, registry)
    for fault in preset.faults:
        raise UsageError(fault.text)
    stages = list[Assigned]()
    for entry in preset.stages:
        path = entry.when.path if entry.when else None
        source = f"stages.{entry.stage}" if path is None else f"stages.{entry.stage} ({path})"
        stages.append(replace(entry, origin=origin, said=source))
    return SettingsLayer(origin, preset.values, {key: key for key in preset.values}, tuple(stages))


class Jobs:
    """The jobs of many requests on one model: shared settings, overridden by the options of each request.

    `read` turns the options of a request into a layer. Requests with equal options share a job except for the
    seed; the least recently used jobs are dropped. `base`: job of a request without options. `are_guided`,
    `are_contrasted`: whether any job so far uses guidance, or a contrast model. `stages`, `drafters`: names
    used so far. Thread-safe.
    """

    def __init__(self, settings: Settings, read: ReadLayer) -> None:
        self.base = make_job(settings)
        self.are_guided = self.are_contrasted = False
        self.stages, self.drafters = set[str](), set[str]()
        self._lock = Lock()  # guards the names in use
        self._note(self.base)
        self._settings, self._read = settings, read
        self._registry = self.base.registry
        self._jobs: Recent[str, Job] = Recent(_MAX_JOBS, max_weight=_MAX_CHARS, weigh=len)

    def job(self, options: Mapping[str, Any], *, is_chat: bool = False) -> Job:
        """Return the job of a request; `is_chat`: its messages need the chat template.

        A request without a seed gets the shared one. Raises UsageError or ProcessorsError for options that
        are unknown, out of bounds, or in conflict with each other or with the shared ones.
        """
        is_chat = is_chat and not self._settings["chat"]
        if not options and not is_chat:
            return self.base
        seedless = {key: value for key, value in options.items() if key != "seed"}
        key = json.dumps([seedless, is_chat], sort_keys=True)

        def make() -> Job:
            if is_chat and (self._settings["raw"] or seedless.get("raw")):
                raise UsageError("A row with messages needs the chat template, but raw is set.")
            layer = self._read({**seedless, **({"chat": True} if is_chat else {})}, self._registry)
            job = make_job(resolve(*self._settings.layers, layer, registry=self._registry))
            self._note(job)
            return job

        job = self._jobs.get(key, make)
        if "seed" not in options:
            return replace(job, seed=self.base.seed)
        return replace(job, seed=int(self._read({"seed": options["seed"]}, self._registry).values["seed"]))

    def _note(self, job: Job) -> None:
        with self._lock:
            self.stages.update(name for name, _ in job.assembly.chain.active())
            self.drafters.add(job.drafting.drafter)
            if job.guidance.is_on:
                self.are_guided |= not job.guidance.amateur
                self.are_contrasted |= bool(job.guidance.amateur)


ORIGIN = "SamplingParams"  # origin of values given in Python
_TRACE = "trace"  # here the number of ids in lists, because no request names a file
PARAM_KEYS = REQUEST_KEYS - {"chat", "raw"} | {_TRACE}  # the called method decides about the template


class SamplingParams(Mapping[str, Any]):
    """How texts are generated. Keywords are the options of `gencli run` that belong to a request.

    `chain` may be a text such as "repetition=1.2 | temperature=0.8 | min_p=0.05", which gives the stages,
    their values and their order. `json_schema` may be a mapping, or a class that pydantic knows a schema of.
    `trace` explains each token; it is the number of ids in each list of a record (1 to 100).
    Printing shows the given values. Raises UsageError for a keyword that does not exist, with the nearest
    one, and for a value out of bounds. An unknown stage raises UnknownStage when an LLM is given the value,
    because the LLM may have the stage from a plug-in.
    """

    def __init__(self, **values: Any) -> None:
        self._values = {key: _plain(key, value) for key, value in values.items() if value is not None}
        for key in self._values:
            if key not in PARAM_KEYS:
                raise UsageError(_unknown(key))
        # Stages of plug-ins are not checked, because only the registry of an LLM knows them.
        values, registry = dict(self._values), builtin_registry()
        chain, stages = values.pop("chain", None), values.pop("stages", {})
        builtin = {name: value for name, value in stages.items() if name in registry}
        params_layer({**values, "stages": builtin}, registry)
        if isinstance(chain, str):
            with suppress(UnknownStage):
                check_conditions(Chain.parse(chain, registry), registry)

    def replaced(self, **values: Any) -> SamplingParams:
        """Return a copy with these values changed; None removes a value."""
        return SamplingParams(**{**self._values, **values})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SamplingParams({', '.join(f'{key}={value!r}' for key, value in self._values.items())})"


def params_layer(values: Mapping[str, Any], registry: Registry, origin: str = ORIGIN) -> SettingsLayer:
    """Return the values as a layer of settings; a chain as text may name any stage of the registry.

    Raises UsageError for the first wrong value, or a ProcessorsError for a wrong chain.
    """
    chain, traced = values.get("chain"), values.get(_TRACE)
    if isinstance(chain, str):
        parsed, entries = Chain.parse(chain, registry), dict[str, list[dict[str, Any]]]()
        check_conditions(parsed, registry)
        for name, params in parsed:
            fields = params.to_mapping() or {params.main(): getattr(params, params.main())}
            entries.setdefault(name, []).append(fields)
        items = [{name: several if several[1:] else several[0]} for name, several in entries.items()]
        values = {**values, "chain": [item if any(item.values()) else next(iter(item)) for item in items]}
    layer = request_layer({key: value for key, value in values.items() if key != _TRACE}, registry, origin)
    if traced is None:
        return layer
    try:
        count = checked("trace_top", traced)
    except ParamError as error:
        raise UsageError(f"{_TRACE} {str(error).removeprefix('trace_top ')}") from None
    values = {**layer.values, _TRACE: count, "trace_top": count}
    return replace(layer, values=values, places={**layer.places, _TRACE: _TRACE, "trace_top": _TRACE})


def _unknown(key: str) -> str:
    section = next((entry.section for entry in OPTIONS if entry.key == key), None)
    if section == "Model":
        return f"{key} is an argument of LLM, not of SamplingParams."
    if section is not None:
        return f"SamplingParams has no {key!r}: it is not about one request."
    if key in builtin_registry().names():
        return f"SamplingParams has no {key!r}. It is a stage: write it in stages or chain."
    near = meant_option(key, {name: name for name in PARAM_KEYS})
    return f"SamplingParams has no {key!r}. {near}".strip()


def _plain(key: str, value: Any) -> Any:
    if key == "json_schema" and not isinstance(value, str | Mapping | bool):
        from gencli.structured.schema_inputs import model_of

        value = model_of(value).schema()
    if key == "json_schema" and not isinstance(value, str):
        return json.dumps(value)
    if key == "stages" and not isinstance(value, Mapping):
        raise UsageError(f"stages is {value!r}, but has to map names of stages to their values.")
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return value
