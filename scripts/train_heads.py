"""Train draft heads for a model: an EAGLE-3, DFlash or Medusa head, in the layouts of their references.

    python scripts/train_heads.py OUT --minutes 30 --threads 2            # an EAGLE-3 head of tiny
    python scripts/train_heads.py OUT --kind medusa --minutes 10
    python scripts/train_heads.py OUT --kind dflash --drafts 7            # a block of eight tokens
    python scripts/train_heads.py OUT --target FOLDER --prompts FILE      # the target continues each prompt
    python scripts/train_heads.py OUT --target FOLDER --text FILE         # texts as they are
    python scripts/train_heads.py OUT --resume --minutes 30               # continues

A head learns the distributions of the target on the target's own texts, as these are what it drafts. OUT is
usable from the first report on. OUT/training has what `--resume` needs, and can be deleted. A resumed run has
the options of the first one, and gives the weights of an uninterrupted one (same machine, same threads).
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from draft_heads import DFlash, Eagle3, Head, Medusa, Target, default_taps, store
from tiny_corpus import documents
from torch import Tensor, nn
from torch.nn import functional

from gencli import LLM
from gencli.errors import GencliWarning
from gencli.text.tokenizer import Tokenizer

BLOCK = 256  # texts that are sorted by length, so that those of a batch are about as long
DECAY = 0.8  # weight of the loss of a draft relative to that of the draft before
WARM_UP, KEPT_RATE, AVERAGED = 50, 1_000, 10  # steps
OF_RUN = (
    "kind target drafts layers taps inner vocabulary dtype batch rate seed every".split()
)  # kept by --resume
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


class Text(NamedTuple):
    """Token ids; those from `start` on are the target's own."""

    ids: tuple[int, ...]
    start: int


class Batch(NamedTuple):
    """Padded ids [B, T], with the first own token and the length of each text, both [B, 1]."""

    ids: Tensor
    starts: Tensor
    lengths: Tensor


def make_texts(options: argparse.Namespace) -> list[Text]:
    """Return the texts to learn from; the first of them only measure (see `num_held_out`)."""
    sampling = {"temperature": options.temperature, "max_tokens": options.length, "seed": options.seed}
    with LLM(options.target, max_batch=48, device=options.device, threads=options.threads) as llm:
        if options.text:
            texts = [Text(tuple(llm.tokenizer.encode(text)), 1) for text in read_file(options.text)]
        else:
            if options.chat:
                turns = [[{"role": "user", "content": prompt}] for prompt in read_file(options.prompts)]
                done = llm.chat(turns, **sampling)
            elif options.prompts:
                done = llm.generate(read_file(options.prompts), **sampling)
            else:
                prompts = [*begun_documents(llm.tokenizer, options.texts, options.seed)]
                with warnings.catch_warnings(
                    action="ignore", category=GencliWarning
                ):  # some end with a space
                    done = llm.generate_from_ids(prompts, **sampling)
            pairs = ((each.prompt_token_ids, each.token_ids) for each in done)
            texts = [Text((*prompt, *output), len(prompt)) for prompt, output in pairs]
    cut = (Text(text.ids[: options.length], text.start) for text in texts)
    return [text for text in cut if len(text.ids) > options.drafts + 1]


def num_held_out(texts: int) -> int:
    """Return how many of the texts only measure."""
    return min(64, texts // 4)


def begun_documents(tokenizer: Tokenizer, number: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield beginnings of documents of the bundled models; the first ones are held out."""
    rng = Random(seed)
    unseen = itertools.islice(documents(seed, "held-out", 1), num_held_out(number))
    for document in itertools.islice(itertools.chain(unseen, documents(seed, "train", 1)), number):
        ids = tokenizer.encode(document)
        yield tuple(ids[: rng.randint(1, max(1, len(ids) // 2))])


def read_file(path: Path) -> list[str]:
    """Return the texts of a file: strings as JSON Lines (.jsonl), or with blank lines between them."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    return [text.strip("\n") for text in content.split("\n\n") if text.strip()]


def batches(texts: Sequence[Text], size: int, seed: int) -> Iterator[list[Text]]:
    """Yield batches of at most `size` tokens, or of one text, endlessly; the seed decides all of them."""
    for epoch in itertools.count():
        rng = Random(f"{seed} {epoch}")
        order = rng.sample(texts, len(texts))
        groups = list[list[Text]]()
        for begin in range(0, len(order), BLOCK):
            groups.append([])
            for text in sorted(order[begin : begin + BLOCK], key=lambda text: len(text.ids)):
                if (len(groups[-1]) + 1) * len(text.ids) > size and groups[-1]:
                    groups.append([])
                groups[-1].append(text)
        rng.shuffle(groups)
        yield from groups


def padded(texts: Sequence[Text], device: torch.device) -> Batch:
    """Return the texts as a batch, padded with zeros."""
    length = max(len(text.ids) for text in texts)
    ids = [[*text.ids, *[0] * (length - len(text.ids))] for text in texts]
    starts, lengths = [[text.start] for text in texts], [[len(text.ids)] for text in texts]
    return Batch(*(torch.tensor(values, device=device) for values in (ids, starts, lengths)))


def loss_of(head: Head, target: Target, texts: Sequence[Text], drafts: int) -> Tensor:
    """Return the weighted sum of the drafts' cross-entropies to the target's distributions.

    Tokens outside the draft vocabulary are left out: the probability of the others is the weight of a place.
    """
    batch = padded(texts, target.model.device)
    states, logits = target.read(batch.ids, head.taps)
    wanted = (logits[..., head.vocabulary] - logits.logsumexp(-1, keepdim=True)).exp()
    places, total = torch.arange(batch.ids.shape[1], device=logits.device), logits.new_zeros(())
    for i, given in enumerate(head(states, batch.ids, drafts)):
        known = places[1 + i :] < batch.lengths
        entropy = -(wanted[:, 1 + i :] * given.log_softmax(-1)).sum(-1)
        total = total + DECAY**i * entropy[known].sum() / known.sum()
    return total


@torch.no_grad()
def agreement(
    head: Head, weights: dict[str, Tensor], target: Target, texts: Sequence[Text], drafts: int
) -> tuple[list[float], float]:
    """Return by draft how often its first choice is the target's, and how many in a row are on average.

    The tokens before a draft are those of the text. Drafts of the target's own tokens count.
    """
    right = list[Tensor]()
    for begin in range(0, len(texts), 16):
        batch = padded(texts[begin : begin + 16], target.model.device)
        states, logits = target.read(batch.ids, head.taps)
        wanted = logits.argmax(-1)
        places = torch.arange(batch.ids.shape[1], device=wanted.device) + 2  # of the first drafts
        given = torch.func.functional_call(head, weights, (states, batch.ids, drafts))
        chosen = (head.vocabulary[each.argmax(-1)] for each in given)
        same = [functional.pad(ids == wanted[:, 1 + i :], (0, 1 + i)) for i, ids in enumerate(chosen)]
        is_own = (places >= batch.starts) & (places + drafts <= batch.lengths)
        right.append(torch.stack(same, -1)[is_own])
    every = torch.cat(right).float()
    return every.mean(0).tolist(), every.cumprod(1).sum(1).mean().item()


def share_of_rate(step: int) -> float:
    """Return the learning rate's factor: it rises, stays, and falls with the square root of the steps."""
    return min((step + 1) / WARM_UP, (KEPT_RATE / (step + 1)) ** 0.5, 1.0)


def train(head: Head, target: Target, texts: Sequence[Text], options: argparse.Namespace) -> None:
    """Train until the time or the steps are over; store weights averaged over about a tenth of the steps.

    Neither rate nor average needs the number of steps in advance, so a run can be continued at any time.
    """
    state, losses, step = options.out / "training" / "state.pt", list[float](), 0
    optimizer = torch.optim.AdamW(head.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    average = {name: weight.clone() for name, weight in head.state_dict().items()}
    if state.exists():
        kept = torch.load(state, weights_only=True, map_location=target.model.device)
        head.load_state_dict(kept["head"])
        optimizer.load_state_dict(kept["optimizer"])
        average, step = kept["average"], kept["step"]
    number = num_held_out(len(texts))
    known, held_out = texts[number:], texts[:number]
    data = itertools.islice(batches(known, options.batch, options.seed), step, None)

    def is_over() -> bool:
        return step >= options.steps or time.monotonic() - options.begun > 60 * options.minutes

    def report() -> None:
        stored = {name: weight.to(DTYPES[options.dtype]) for name, weight in average.items()}
        store(head, stored, target, options.out)
        wide = {name: weight.float() for name, weight in stored.items()}
        shares, row = agreement(head, wide, target, held_out, options.drafts)
        loss = f"loss {sum(losses) / len(losses):.3f}  " if losses else ""
        shown = " ".join(f"{100 * share:.1f}" for share in shares)
        minutes = (time.monotonic() - options.begun) / 60
        print(f"step {step}  {loss}agreement {shown} %  in a row {row:.2f}  {minutes:.1f} min", flush=True)
        losses.clear()

    report()
    while not is_over():
        for group in optimizer.param_groups:
            group["lr"] = options.rate * share_of_rate(step)
        loss = loss_of(head, target, next(data), options.drafts)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        step += 1
        for name, weight in head.state_dict().items():
            average[name].lerp_(weight, AVERAGED / (AVERAGED + step))
        losses.append(loss.item())
        if step % options.every == 0 or is_over():
            report()
            found = {"head": head.state_dict(), "average": average, "optimizer": optimizer.state_dict()}
            torch.save(found | {"step": step}, state.with_suffix(".new"))
            state.with_suffix(".new").replace(state)


def make_head(target: Target, texts: Sequence[Text], options: argparse.Namespace) -> Head:
    """Return the untrained head. A draft vocabulary has the most frequent tokens of the texts."""
    if options.kind == "medusa":
        return Medusa(target, options.drafts)
    size = target.head.weight.shape[0]
    counts = Counter(dict.fromkeys(range(size), 0))
    counts.update(token for text in texts for token in text.ids)
    taps, inner = (
        options.taps or default_taps(target.num_layers),
        options.inner or target.config.intermediate_size,
    )
    if options.kind == "dflash":
        mask = min(counts, key=lambda token: (counts[token], -token))  # a token that no text needs
        print(f"taps {taps}; masks are the token {mask}")
        return DFlash(target, taps, inner, layers=options.layers, drafts=options.drafts, mask=mask)
    chosen = counts.most_common(options.vocabulary or min(32_000, size // 2))
    share = sum(count for _, count in chosen) / counts.total()
    print(f"taps {taps}; the draft vocabulary of {len(chosen)} has {share:.1%} of the tokens")
    vocabulary = torch.tensor(sorted(token for token, _ in chosen), device=target.model.device)
    return Eagle3(target, taps, vocabulary, inner)


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command; a run that is resumed has those of the first run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("out", type=Path, help="folder of the head")
    add("--kind", choices=("eagle3", "dflash", "medusa"), default="eagle3")
    add("--target", default="tiny", help="name or folder of the model to draft for")
    add("--prompts", type=Path, help="file of prompts that the target continues")
    add("--chat", action="store_true", help="the prompts are turns of a user")
    add("--text", type=Path, help="file of texts that are learned as they are")
    add("--texts", type=int, default=16_000, help="number of texts of a bundled model")
    add("--temperature", type=float, default=0.8, help="that of the texts")
    add("--length", type=int, default=384, help="most tokens of a text")
    add(
        "--drafts",
        type=int,
        default=4,
        help="drafts in a row: 1 + trained recursions, masks of a block, or Medusa heads",
    )
    add("--layers", type=int, default=2, help="layers of a DFlash head")
    add("--taps", type=int, nargs="+", help="hidden states that an EAGLE-3 or DFlash head reads")
    add("--inner", type=int, help="width of the MLP; the target's by default")
    add("--vocabulary", type=int, help="draft vocabulary; by default half of the target's, at most 32,000")
    add("--dtype", choices=sorted(DTYPES), default="float16", help="that of the file")
    add("--batch", type=int, default=1024, help="most tokens of a step")
    add("--rate", type=float, default=6e-3)
    add("--seed", type=int, default=1)
    add("--device", default="auto")
    add("--threads", type=int, default=1)
    add("--every", type=int, default=200, help="steps between two reports, which store the head")
    add("--minutes", type=float, default=30, help="time of this run, texts included")
    add("--steps", type=float, default=math.inf, help="steps of all runs")
    add("--resume", action="store_true", help="continue the run in OUT with its options")
    options = parser.parse_args(arguments)
    folder, options.begun = options.out / "training", time.monotonic()
    if options.resume:
        first = json.loads((folder / "options.json").read_text(encoding="utf-8"))
        return argparse.Namespace(**vars(options) | first)
    if folder.exists():
        parser.error(f"{folder} has a run: continue it with --resume, or delete the folder")
    if options.target != "tiny" and not (options.prompts or options.text):
        parser.error("a target other than tiny needs --prompts or --text")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the texts, then train."""
    options = read_options(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    folder = options.out / "training"
    if options.resume:
        content = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        texts = [Text(tuple(ids), start) for ids, start in content]
    else:
        texts = make_texts(options)
        folder.mkdir(parents=True)
        (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        kept = {key: value for key, value in vars(options).items() if key in OF_RUN}
        (folder / "options.json").write_text(json.dumps(kept), encoding="utf-8")
    target = Target(options.target, options.device)
    head = make_head(target, texts, options).to(target.model.device)
    numbers = sum(weight.numel() for weight in head.parameters())
    tokens, minutes = sum(len(text.ids) for text in texts), (time.monotonic() - options.begun) / 60
    print(f"{len(texts)} texts of {tokens} tokens after {minutes:.1f} min; {numbers} numbers in the head")
    train(head, target, texts, options)


if __name__ == "__main__":
    main()
