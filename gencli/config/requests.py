"""The requests of a job: prompts as token ids, with the job's settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gencli.config.job import Job
from gencli.core.request import Guidance, Request
from gencli.templates.chat_templates import NOTHING, Instructions, render_conversation
from processors.marker import Marker

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = ["chat_ids", "chat_notices", "encode_prompt", "make_request", "make_requests"]


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
    return Request(
        id=name,
        prompt_ids=prompt_ids,
        chain=job.assembly.chain,
        seed=seed,
        draw=job.draw,
        n=job.n,
        stops=job.stops,
        limits=job.limits,
        session=session,
        jump=job.structure.jump if job.structure else "auto",
        finish_open=job.structure is not None and job.structure.finish_open,
        beams=job.beams,
        best_of=job.best_of,
        contrastive=job.contrastive,
        drafting=job.drafting,
        guidance=_guidance(job, tokenizer),
        dola=job.dola,
        logprobs=job.logprobs,
        prompt_logprobs=job.prompt_logprobs,
        trace=job.trace,
        keep_logits=job.keep_logits,
        marker=_awaited_marker(job, prompt_ids, tokenizer),
    )


def _awaited_marker(job: Job, prompt_ids: tuple[int, ...], tokenizer: Tokenizer) -> str:
    """Return the text that ends the reasoning of the output; "" if the prompt has ended it."""
    after = job.structure.after if job.structure else ""
    return "" if not after or Marker.of(after, tokenizer).ends(prompt_ids) else after


def _guidance(job: Job, tokenizer: Tokenizer) -> Guidance:
    """Return the guidance with the tokens of its negative prompt, encoded like a prompt."""
    if job.negative is None:
        return job.guidance
    return replace(job.guidance, negative=encode_prompt(job, job.negative, tokenizer))


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
