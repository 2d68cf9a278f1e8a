"""The command that reproduces a traced text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from gencli.config.options.flags import with_flags
from gencli.explain.trace_file import TracedText
from processors.chain import Chain
from processors.errors import ProcessorsError

__all__ = ["command"]

_SET_ELSEWHERE = {"grammar", "tail", "kgw", "synthid", "gumbel_mark"}  # stages that no option can restore


def command(text: TracedText, texts: Sequence[TracedText]) -> str:
    """Return a command line with the text's model, prompts, chain, draw and seed; "" if some are unknown.

    A row's noise depends on the index of its prompt, so the command contains all prompts before it. A trace
    does not record guidance, template, grammar or stops; to reproduce such a run, these options have to be
    added.
    """
    head, prompts = text.head, _prompts(text, texts)
    try:
        chain = Chain.from_list(head["chain"])
    except (ProcessorsError, AttributeError, KeyError, TypeError, ValueError):
        return ""
    names = [name for name, _ in chain]
    if prompts is None or not _SET_ELSEWHERE.isdisjoint(names):
        return ""
    settings = [("model", head["model"]), ("seed", head["seed"]), ("sampler", head["draw"]), *_stages(chain)]
    settings += [("n", text.key[1] + 1)] if text.key[1] else []
    settings += [("max_tokens", len(text.records))]
    words = [word for key, value in settings for word in (with_flags(f"`{key}`"), str(value))]
    return shlex.join(["gencli", "run", *words, "--", *prompts])


def _stages(chain: Chain) -> Iterator[tuple[str, str]]:
    for stage in chain.stages:
        yield "stage", str(Chain((stage,)))
    if order := list(dict.fromkeys(name for name, _ in chain)):
        yield "chain", ",".join(order)


def _prompts(text: TracedText, texts: Sequence[TracedText]) -> list[str] | None:
    """Return the prompts up to the text's own; None if one is not in the trace."""
    known = {one.key[0]: one.head.get("prompt") for one in texts}
    numbers = [str(number) for number in range(1, len(known) + 1)]
    if text.key[0] not in numbers:
        return None
    found = [known.get(number) for number in numbers[: numbers.index(text.key[0]) + 1]]
    prompts = [prompt for prompt in found if isinstance(prompt, str)]
    return prompts if len(prompts) == len(found) else None
