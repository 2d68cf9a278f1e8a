"""Count texts that are the same with drafts, and write the table of docs/contributing/evidence.md.

python scripts/identity_table.py [--prompts 200] [--model tiny] [--drafts ngram,suffix,...]
The model runs in float32; prompt i has 1 + i % 8 drafts at a time, so that each number has its share.
"""

import argparse
import json
from itertools import product
from pathlib import Path

from marks import write_between

from gencli.core.events import Finish, Token
from gencli.core.request import Drafting, Limits, Request
from gencli.runtime.model_loading import ModelChoice, load
from gencli.runtime.wiring import bare_engine, make_drafter
from processors.chain import Chain

LENGTH = 32
PAGE = Path(__file__).parent.parent / "docs" / "contributing" / "evidence.md"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}  # fmt: skip
GROUPS = {
    "greedy": "temperature=0",
    "draw": "temperature=0.8",
    "truncation": "temperature=1.1 | min_p=0.02 | top_k=50 | top_p=0.95",
    "penalties": "repetition=1.3 | frequency=0.4 | presence=0.3 | temperature=0.9",
    "masks": 'ban=[" the", "ing"] | suppress=[20,21,22] | bias=[[30,1.5],[40,-2]]',
    "lengths": "min_tokens=20 | ignore_eos=true | temperature=0.9",
    "grammar": f"grammar={json.dumps(json.dumps(SCHEMA))} | frequency=0.3",
}
NAMES = ("Tom", "Ivy", "Ben", "Kaya", "Leo", "Mia", "the fox", "the owl", "a girl", "the old man")
PLACES = ("in the garden", "by the lake", "near the village", "at the market", "on the hill")
TEXTS = ("Once upon a time {n} lived {p}.", "{n} was {p} when it began to rain. {n}",
         'One day {p} {n} said: "', "{p}, {n} found a small box. The small box")  # fmt: skip
PROMPTS = [text.format(n=n, p=p) for text, n, p in product(TEXTS, NAMES, PLACES)]


def generated(loaded, drafter, name, chain, prompts):
    """Return the tokens of each prompt, and the numbers of accepted draft tokens and of forward passes."""
    on = bare_engine(loaded.runner, loaded.tokenizer, max_batch=16, drafter=drafter)
    for i, text in enumerate(prompts):
        on.submit(Request(str(i), tuple(loaded.tokenizer.encode(text)), Chain.parse(chain), seed=i,
                          limits=Limits(LENGTH), drafting=Drafting(name, 1 + i % 8)))  # fmt: skip
    ids, forwards = {}, 0
    for event in on.run():
        if isinstance(event, Token):
            ids[event.request] = ids.get(event.request, ()) + event.ids
        elif isinstance(event, Finish) and event.drafted:
            forwards += event.drafted.forwards
    return ids, forwards


def main(args):
    choice = ModelChoice(args.model, dtype="float32", max_batch=16)
    loaded, prompts = load(choice), PROMPTS[: args.prompts]
    plain = {group: generated(loaded, None, "none", chain, prompts)[0] for group, chain in GROUPS.items()}
    said = f"{args.model} in float32, {len(prompts)} prompts, {LENGTH} tokens each:\n"
    lines = [said, "| drafter | " + " | ".join(GROUPS) + " |", "|---|" + "---|" * len(GROUPS)]
    for name in args.drafts.split(","):
        cells = []
        for group, chain in GROUPS.items():
            found, forwards = generated(loaded, make_drafter(name, loaded, choice), name, chain, prompts)
            same = sum(found[key] == ids for key, ids in plain[group].items())
            cells.append(f"{same}/{len(prompts)} ({sum(map(len, found.values())) / forwards:.1f})")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    write_between(PAGE, "identity", "\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--drafts", default="ngram,suffix,auto,tiny-draft,tiny,early-exit")
    main(parser.parse_args())
