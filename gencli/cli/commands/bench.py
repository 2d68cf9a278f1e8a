"""`gencli bench`: measures the cost of parts of gencli on this machine. One module for each benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from gencli.bench.records import (
    BatchCost,
    DraftGain,
    GpuCost,
    GrammarCost,
    RunCost,
    SamplerCost,
    ServeCost,
    StageCost,
    StepCost,
)
from gencli.cli.commands.bench_batch import batch
from gencli.cli.commands.bench_gpu import gpu
from gencli.cli.commands.bench_grammar import grammar
from gencli.cli.commands.bench_report import help_of
from gencli.cli.commands.bench_run import runs
from gencli.cli.commands.bench_sampler import sampler
from gencli.cli.commands.bench_serve import serve
from gencli.cli.commands.bench_speculate import speculate
from gencli.cli.commands.bench_stages import stages
from gencli.cli.commands.bench_step import step

__all__ = ["command"]

# Name, function, what it measures in a few words and in full, and its records.
_BENCHMARKS: tuple[tuple[str, Callable[..., int], str, str, type[Any]], ...] = (
    (
        "run",
        runs,
        "Whole runs beside transformers and llama.cpp.",
        "Measure whole processes in turns: gencli run, a script with transformers and, with --gguf, a script "
        "with llama.cpp. Each runs twice a turn: with two tokens for each prompt, which shows the time to "
        "start, and with --max-tokens.",
        RunCost,
    ),
    (
        "step",
        step,
        "A decode step of the engine without a model.",
        "Measure a decode step of the engine without a model: the logits are read from a table. What is left "
        "is the time of the scheduler, the chain, the draw and the texts. Four chains take turns: greedy; "
        "the default, a Gumbel draw; temperature and top-p; and both with a repetition penalty and top-k.",
        StepCost,
    ),
    (
        "sampler",
        sampler,
        "A chain and its draw beside transformers.",
        "Measure a chain and its draw on the logits of one step: in gencli, and with the logits processors, "
        "softmax and multinomial of transformers. A torch.logsumexp of the same logits shows the time of a "
        "single pass over them. All three take turns.",
        SamplerCost,
    ),
    (
        "stages",
        stages,
        "Each stage beside one pass over the logits.",
        "Measure each stage alone on the logits of one step, in turns with a torch.logsumexp of the same "
        "logits, which is a single pass over them.",
        StageCost,
    ),
    (
        "batch",
        batch,
        "Many requests beside transformers.",
        "Measure one load of requests of unequal length, greedily, on a random model with 15M parameters: in "
        "gencli, in generate() of transformers with padded batches, unsorted and sorted by length, and in "
        "generate_batch() of transformers.",
        BatchCost,
    ),
    (
        "grammar",
        grammar,
        "A step with a JSON schema against one without.",
        "Measure a step with a JSON schema against a step without one, on a random model with 15M parameters "
        "and 32,000 token ids. Both kinds of step take turns.",
        GrammarCost,
    ),
    (
        "speculate",
        speculate,
        "Steps with draft tokens against plain ones.",
        "Measure steps with draft tokens against plain steps, for each number of draft tokens and of texts. "
        "Both kinds of step take turns. The last lines name the best number of draft tokens, and the number "
        "of texts from which on drafts gain nothing.",
        DraftGain,
    ),
    (
        "serve",
        serve,
        "The server under load beside a batch.",
        "Measure gencli serve, a process of its own, under a load of streams: a closed loop of clients, or "
        "with --rate an open loop of requests at random times; and the same load as a batch.",
        ServeCost,
    ),
    (
        "gpu",
        gpu,
        "Kernels and decode steps on a GPU, beside predictions.",
        "Measure the GPU: its read bandwidth, a launch and the replay of a graph, kernels, chains with their "
        "draw, a step of rejection, and decode steps of random models; beside what was predicted for such a "
        "GPU. With --predict only the predictions are printed, for the GPU that --card names.",
        GpuCost,
    ),
)  # fmt: skip


def command() -> typer.Typer:
    """Return the typer group of the benchmarks."""
    app = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback(help="Measure what parts of gencli cost on this machine.")(lambda: None)
    for name, function, short, measures, kind in _BENCHMARKS:
        app.command(name, short_help=short, help=help_of(measures, kind))(function)
    return app
