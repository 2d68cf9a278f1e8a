"""The job of a run: its checked settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gencli.config.chain import Assembly, assemble, greedy_cause
from gencli.config.conditions import refuse_idle_conditions
from gencli.config.conflicts import refuse_conflicts
from gencli.config.guidance import wanted_dola, wanted_guidance
from gencli.config.instructions import wanted_instructions
from gencli.config.options.drafts import NO_DRAFTER
from gencli.config.searches import choosing, wanted_beams, wanted_contrastive
from gencli.config.settings import CHAT_DEFAULT, Settings
from gencli.config.structure import build_output_spec
from gencli.config.watermark import refuse_watermark, wanted_mark, watermark_notices
from gencli.core.request import Beams, Contrastive, Drafting, Guidance, LayerContrast, Limits, Stops
from gencli.plugins.plugin_registry import make_registry, plugin_notices
from gencli.structured.output_spec import OutputSpec, plan_notices
from gencli.templates.chat_templates import NOTHING, Instructions
from gencli.text.text_stream import check_pattern
from processors.catalog import Draw, Phase
from processors.chain import Chain
from processors.constraint import Constraint
from processors.order import doubts
from processors.policy import MATCH, Verification
from processors.registry import Registry, builtin_registry

__all__ = ["Job", "make_job", "notices"]

_DRAFTED_ROWS = 4  # rows of a drafted text: its token and three draft tokens


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
        """Whether the most likely token is taken in each step."""
        return self.resolved[1] == "greedy"

    @property
    def num_drawn(self) -> int:
        """Number of sequences that run for each prompt, including candidates that are not chosen."""
        if self.contrastive is not None:
            return self.contrastive.k
        return self.beams.width if self.beams else self.best_of or self.n

    @property
    def rows_each(self) -> int:
        """Usual number of rows of each text in a decode step: its token, draft tokens, and companion."""
        return (_DRAFTED_ROWS if self.is_drafted else 1) * (2 if self.guidance.is_on else 1)

    @property
    def untold_tools(self) -> tuple[str, ...]:
        """Names of tools that nothing tells the model of, so that only the prompt can mention them."""
        tools = () if self.is_chat or self.instructions.is_raw_told else self.instructions.tools
        return tuple(str(tool.get("function", tool)["name"]) for tool in tools)

    @property
    def is_drafted(self) -> bool:
        """Whether there may be drafts, by a drafter or of forced text, under the exact policy `match`."""
        is_exact = self.drafting.verification.policy == MATCH.policy
        has_jumps = self.structure is not None and self.structure.jump != "off"
        return is_exact and (self.drafting.drafter != NO_DRAFTER or has_jumps)

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
    assembly = assemble(settings, registry, grammar=_first_grammar(structure), mark=mark)
    refuse_watermark(settings, mark, greedy=greedy_cause(settings, assembly))
    refuse_conflicts(settings, assembly)
    refuse_idle_conditions(settings, assembly, structure)
    for pattern in settings["stop_regex"]:
        check_pattern(pattern)
    seed = settings["seed"]
    return Job(
        assembly=assembly,
        draw="greedy" if settings["beams"] else settings["sampler"],
        draw_origin=settings.where(choosing(settings)),
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
        beams=wanted_beams(settings),
        best_of=settings["best_of"] or None,
        contrastive=wanted_contrastive(settings),
        drafting=_drafting(settings),
        guidance=wanted_guidance(settings),
        dola=wanted_dola(settings),
        negative=settings["negative"],
        logprobs=settings["logprobs"],
        prompt_logprobs=settings["prompt_logprobs"],
        trace=None if settings["trace"] is None else settings["trace_top"],
        keep_logits=settings["keep_logits"] or 0,
        has_token_ids=settings["token_ids"],
        registry=registry,
    )


def _drafting(settings: Settings) -> Drafting:
    tokens = settings["draft_tokens"]
    return Drafting(
        settings["draft"],
        None if tokens == "auto" else tokens,
        settings["draft_min_p"],
        Verification(settings["verify"], settings["verify_threshold"] or MATCH.threshold),
    )


def _grammar_fields(constraint: Constraint, after: str) -> dict[str, Any]:
    """Return the fields of the stage `grammar`."""
    return {
        "text": constraint.text,
        "kind": constraint.kind,
        "backend": constraint.backend,
        "whitespace": constraint.whitespace,
        "after": after,
    }


def _first_grammar(structure: OutputSpec | None) -> dict[str, Any] | None:
    if structure is None:
        return None
    return _grammar_fields(structure.plan.variants[0].constraint, structure.after)


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
        yield from _idle_stops(job)
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


def _idle_stops(job: Job) -> Iterator[str]:
    """Yield a notice about stops, because they have no effect inside a document."""
    if job.structure is None or not job.structure.is_document:
        return
    stops = job.stops
    asked = {"stop": stops.strings, "stop_id": stops.ids, "stop_regex": stops.patterns}
    named = [
        *(f"`{key}`" for key, found in asked.items() if found),
        *(["`include_stop`"] if stops.include else []),
    ]
    if named:
        yield f"A document ends by itself; inside it these options have no effect: {', '.join(named)}."
