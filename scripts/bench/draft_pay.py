"""Speedup by drafts on a model of 300 million parameters: the tables of docs/contributing/performance.md.

    python scripts/inflate.py gencli/assets/tiny BIG
    python scripts/bench/draft_pay.py --big BIG [--stories 3] [--tokens 96] [--repeats 20] [--steps 120]
        [--json FILE]

The variants of a table alternate prompt by prompt, in one process with one thread, in float32. Prefill is not
counted. A ratio is tokens per second relative to plain decoding, by wall-clock time and by CPU time of the
process, which other load disturbs less. It needs one core.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
from random_models import VOCABULARY, MadeTokenizer, random_llama
from speculate import measure_drafts

from gencli.core.events import Error, Finish, Token
from gencli.core.request import Limits, Request
from gencli.models.decoder.products.dense_products import pack
from gencli.models.hf_runner import HFRunner
from gencli.runtime.model_loading import Loaded, ModelChoice, load
from gencli.runtime.wiring import bare_drafter, bare_engine
from gencli.speculative.adaptive_drafts import AdaptiveDrafter, speedup, work_clock
from gencli.speculative.draft_model import DraftSampler
from gencli.speculative.drafter import DraftAsk, Drafter
from processors.chain import Chain

REPEATS = Path(__file__).parent.parent / "tests" / "data" / "repeats.jsonl"
STORIES = (
    "Once upon a time",
    "Mood: calm\nStory:",
    "Once upon a time there was a fox",
    "Mood: angry\nStory:",
)
ACCEPTANCES, LENGTHS = (0.2, 0.4, 0.6, 0.8, 0.95), (1, 2, 4, 8)
GOLDEN = 0.6180339887498949


class Useless(Drafter):
    """Takes the time of another drafter, and is never right."""

    is_autoregressive = True

    def __init__(self, inner: Drafter, size: int) -> None:
        self._inner, self._size = inner, size

    def bind(self, chooser: DraftSampler) -> None:
        self._inner.bind(chooser)

    def admit(self, slot: int, request: Request) -> None:
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        self._inner.release(slot)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        runs = self._inner.propose(asks)
        self.is_reading = self._inner.is_reading
        return [[(token + 7) % self._size for token in run] for run in runs]


class Scripted(Drafter):
    """Proposes tokens of the known text.

    A draft token after right ones is right with probability `rate`, evenly spread. Each costs a small matrix
    product.
    """

    def __init__(self, texts: Sequence[tuple[int, ...]], rate: float) -> None:
        self._texts, self._rate = texts, rate
        self._asked: dict[int, int] = {}  # by the number of drafts
        self._work = torch.ones(200, 200)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        return [self._run(tuple(ask.tokens), ask.most) for ask in asks]

    def _run(self, tokens: tuple[int, ...], most: int) -> list[int]:
        for _ in range(most):
            self._work @ self._work
        text = next(text for text in self._texts if text[: len(tokens)] == tokens)
        run = list(text[len(tokens) : len(tokens) + most])
        self._asked[most] = self._asked.get(most, 0) + 1
        chance = self._asked[most] * GOLDEN % 1.0
        right = next((n for n in range(most) if self._rate ** (n + 1) < chance), most)
        if right < len(run):
            run[right] = (run[right] + 1) % (VOCABULARY - 1)
        return run


class Way:
    """An engine on the model, with or without a drafter, and its counts and times."""

    def __init__(self, loaded: Loaded, drafter: Drafter | None) -> None:
        self._loaded = loaded
        work = work_clock(loaded.runner.spec.device)
        adaptive = AdaptiveDrafter(drafter, clock=work) if drafter else None
        self._engine = bare_engine(
            loaded.runner, loaded.tokenizer, max_batch=1, drafter=adaptive, share_prefixes=False
        )
        self.tokens, self.wall, self.cpu = 0, 0.0, 0.0
        self.forwards, self.ids = 0, list[tuple[int, ...]]()

    def run(self, prompt: str, chain: Chain, tokens: int) -> None:
        """Generate one text; the clocks run from its first to its last token."""
        ids = tuple(self._loaded.tokenizer.encode(prompt))
        draw: Any = "greedy" if chain.is_greedy else "gumbel"
        self._engine.submit(
            Request("0", ids, chain, seed=len(self.ids), draw=draw, limits=Limits(tokens), jump="off")
        )
        text: tuple[int, ...] = ()
        wall = cpu = 0.0
        for event in self._engine.run():
            if isinstance(event, Error):
                raise SystemExit(event.message)
            if isinstance(event, Token):
                if not text:
                    wall, cpu = time.perf_counter(), time.process_time()
                    self.tokens -= len(event.ids)
                text += event.ids
                self.forwards += 1
            if isinstance(event, Finish):
                self.wall += time.perf_counter() - wall
                self.cpu += time.process_time() - cpu
        self.tokens += len(text)
        self.ids.append(text)


def compare(
    loaded: Loaded, drafters: dict[str, Drafter], prompts: Sequence[str], heat: float, tokens: int
) -> list[dict[str, Any]]:
    """Run the variants alternately, in reverse order for every second prompt."""
    ways = {"plain": Way(loaded, None), **{name: Way(loaded, made) for name, made in drafters.items()}}
    chain = Chain.parse(f"temperature={heat}" + (" | ignore_eos=true" if tokens > 64 else ""))
    for number, prompt in enumerate(prompts):
        for name in list(ways) if number % 2 else reversed(ways):
            ways[name].run(prompt, chain, tokens)
    plain = ways["plain"]
    return [
        {
            "drafter": name,
            "temperature": heat,
            "tokens": way.tokens,
            "plain_tokens_per_second": plain.tokens / plain.wall,
            "tokens_per_second": way.tokens / way.wall,
            "tokens_per_forward": sum(map(len, way.ids)) / way.forwards,
            "wall_ratio": way.tokens / way.wall * plain.wall / plain.tokens,
            "cpu_ratio": way.tokens / way.cpu * plain.cpu / plain.tokens,
            "same_texts": sum(a == b for a, b in zip(way.ids, plain.ids, strict=True)) / len(prompts),
        }
        for name, way in ways.items()
        if name != "plain"
    ]


def pay(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return all rows of the table."""
    lines = []
    stories = [STORIES[i % len(STORIES)] for i in range(options.stories)]
    every = [json.loads(line)["prompt"] for line in REPEATS.read_text(encoding="utf-8").splitlines()]
    repeats = every[:: max(1, len(every) // options.repeats)]
    for model in (options.big, "tiny"):
        choice = ModelChoice(model, dtype="float32", max_batch=1)
        loaded = load(choice)

        def made(*names: str, loaded: Loaded = loaded, choice: ModelChoice = choice) -> dict[str, Drafter]:
            return {name: bare_drafter(name, loaded, choice) for name in names}

        useless = Useless(made("tiny-draft")["tiny-draft"], loaded.tokenizer.vocab_size)
        groups = [
            ("stories", made("tiny-draft", "tiny"), stories, 0.0, options.tokens),
            ("stories", made("tiny-draft"), stories, 0.8, options.tokens),
            ("repeats", made("ngram", "suffix", "auto"), repeats, 0.0, 48),
            ("stories", {"useless": useless}, stories[:1], 0.0, 256),
        ]
        if model == "tiny":  # where a text takes no time there can be more of them
            del groups[0][1]["tiny"]
            groups = [(kind, drafters, 4 * list(of), heat, n) for kind, drafters, of, heat, n in groups]
            groups.append(("stories", made("auto"), 4 * stories, 0.0, options.tokens))
        for kind, drafters, prompts, heat, tokens in groups:
            for line in compare(loaded, drafters, prompts, heat, tokens):
                lines.append({"model": "tiny" if model == "tiny" else "inflated", "texts": kind, **line})
                print(_pay_line(lines[-1]), flush=True)
    return lines


def _pay_line(line: dict[str, Any]) -> str:
    return (
        f"| {line['model']} | {line['texts']} | `{line['drafter']}` | {line['temperature']:g} | "
        f"{line['plain_tokens_per_second']:.1f} | {line['tokens_per_second']:.1f} | "
        f"{line['tokens_per_forward']:.2f} | {line['wall_ratio']:.2f} | {line['cpu_ratio']:.2f} | "
        f"{line['same_texts']:.0%} |"
    )


def formula(steps: int) -> list[dict[str, Any]]:
    """Measure the gains of a scripted drafter.

    The costs of an expected gain come from the other acceptance rates.
    """
    runner, tokenizer = HFRunner(pack(random_llama()), max_lanes=1), MadeTokenizer(VOCABULARY)
    prompts = ["A list of things to sell: "]
    text = _text(runner, tokenizer, prompts[0], 900)
    found = {
        rate: list(
            measure_drafts(
                runner,
                tokenizer,
                Scripted([text], rate),
                prompts,
                rows=1,
                lengths=LENGTHS,
                steps=steps,
                max_tokens=800,
                clock=time.process_time,
            )
        )
        for rate in ACCEPTANCES
    }
    lines = []
    for rate, gains in found.items():
        for place, gain in enumerate(gains):
            others = [found[other][place] for other in ACCEPTANCES if other != rate]
            draft, verify = (median(getattr(one, cost) for one in others) for cost in ("draft", "verify"))
            expected = speedup(rate, gain.drafts, draft=draft, verify=verify)
            lines.append({"rate": rate, **asdict(gain), "expected": expected})
    return lines


def _text(runner: HFRunner, tokenizer: MadeTokenizer, prompt: str, tokens: int) -> tuple[int, ...]:
    engine = bare_engine(runner, tokenizer, max_batch=1, share_prefixes=False)
    ids = tuple(tokenizer.encode(prompt))
    engine.submit(Request("0", ids, Chain.parse("ignore_eos=true"), draw="greedy", limits=Limits(tokens)))
    return ids + tuple(token for event in engine.run() if isinstance(event, Token) for token in event.ids)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="what drafts bring")
    parser.add_argument("--big", required=True)
    parser.add_argument("--stories", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    print("load average at the beginning:", *(f"{load:.1f}" for load in os.getloadavg()), "\n")
    head = "model texts drafter temperature plain_tok/s tok/s tokens_a_forward wall CPU same".split()
    print("| " + " | ".join(head).replace("_", " ") + " |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    lines = pay(options)
    print("\n| acceptance | " + " | ".join(f"{n} drafts" for n in LENGTHS) + " | largest error |")
    print("|---|" + "---|" * (len(LENGTHS) + 1))
    points = formula(options.steps)
    for rate in ACCEPTANCES:
        mine = [point for point in points if point["rate"] == rate]
        cells = [f"{point['speedup']:.2f} ({point['expected']:.2f})" for point in mine]
        error = max(abs(point["expected"] / point["speedup"] - 1) for point in mine)
        print(f"| {rate} | " + " | ".join(cells) + f" | {error:.1%} |")
    seconds = time.perf_counter() - start
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"\n{seconds:.0f} s; load average at the end: {loads}")
    if options.json:
        found = {"pay": lines, "formula": points, "load": os.getloadavg(), "seconds": seconds}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
