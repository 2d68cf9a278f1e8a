"""`gencli bench sampler`: cost of a chain with its draw, compared to transformers and torch.logsumexp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gencli.cli.commands.bench_report import Form, LogitRows, Repeats, Threads, measuring, write_report
from gencli.errors import UsageError

if TYPE_CHECKING:
    from processors.chain import Chain

__all__ = ["sampler"]

_Chains = Annotated[
    list[str] | None,
    typer.Option(
        "--chain",
        metavar="CHAIN",
        help='Stages, as in "temperature=0.8 | top_p=0.9", of repetition, temperature, top_k, top_p and '
        "min_p; four chains if not given. (repeatable)",
    ),
]
_Widths = Annotated[
    list[int] | None,
    typer.Option(
        "--width", min=64, max=1 << 20, metavar="N", help="Ids of a row; 128256 if not given. (repeatable)"
    ),
]
_Logits = Annotated[
    Literal["peaked", "flat", "both"],
    typer.Option(
        "--logits",
        help="peaked: as of a language model, a head that falls as rank ** -1.5 over normal ones of "
        "deviation 2.2; flat: normal of deviation 0.1, the worst case.",
    ),
]


def sampler(
    chain: _Chains = None,
    rows: LogitRows = None,
    width: _Widths = None,
    logits: _Logits = "peaked",
    repeats: Repeats = 7,
    threads: Threads = 2,
    form: Form = "text",
) -> int:
    """Measure chains with their draws, alternating with transformers, and print the costs.

    Return the exit code. Raises UsageError for a stage that transformers lacks.
    """
    with measuring(threads):
        from gencli.bench.sampler import CHAINS, KINDS, measure_sampler

        chains, kinds = [_parsed(text) for text in chain or CHAINS], KINDS if logits == "both" else (logits,)
        costs = [*measure_sampler(chains, kinds, width or (128_256,), rows or (1, 8, 32), repeats)]
    write_report(costs, form, conditions={"dtype": "float32", "threads": threads, "rounds": repeats})
    return 0


def _parsed(text: str) -> Chain:
    from gencli.bench.sampler import THEIRS
    from processors.chain import Chain

    chain = Chain.parse(text).active()
    for name, _ in chain:
        if name not in THEIRS:
            raise UsageError(
                f"--chain has the stage {name}, which is not measured.", hint=f"Use {', '.join(THEIRS)}."
            )
    return chain
