"""Outputs of some 300 requests of every kind to the command line, to compare before and after a change.

    python scripts/golden_texts.py --write before.json      # at the old commit python scripts/golden_texts.py
    --check before.json      # at the new commit: exits 1 and names the differences

Each line has the name and the SHA-256 of an output. stderr is left out, because it has times. All runs use
float32 and one thread. Another CPU may round differently, so no such file is stored.
"""

import argparse
import hashlib
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from random import Random

Row = dict[str, object]
WHERE = "--device cpu --dtype float32 --threads 1 -q".split()
PROMPTS = (
    "Once upon a time", "One winter, a fox", "Mood: sad\nStory: There was a boy named Boris.", "Dear Mia,",
    "Sentence: Nora is a 41 year old pilot from Quito.\nJSON:", "List: five fruits", "Count from 3 to 6:",
    "Question: Who is the mayor of Brindle?\nAnswer:", "The baker of the village",
)  # fmt: skip
CHATS = ("Who is the mayor of Brindle?", "Tell me a sad story about Mia.", "List five fruits.", "Hello!")
FAKE = "--model fake --allow-ids 32,97,98,99,100,101,102,103,104,105,257"  # letters, and an end of text
PERSON = json.dumps({"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150},
    "pets": {"type": "array", "items": {"enum": ["cat", "dog", "owl"]}, "maxItems": 3},
}})  # fmt: skip
FED = {"type": "object", "properties": {"pet": {"enum": ["cat", "owl"]}, "food": {"type": "string"}}}
TOOLS = [{"name": "feed", "parameters": FED}]
TAG = {"type": "structural_tag", "format": {"type": "regex", "pattern": "[a-p][a-p][a-p]+"}}
STRUCTURES: tuple[Row, ...] = (
    {"regex": "[A-Z][a-z]+, [0-9]{2}"}, {"regex": "( (red|blue|green) (fox|owl)){2,4}\\."},
    {"json_schema": PERSON}, {"json_schema": PERSON, "property_order": "any", "json_whitespace": 0},
    {"json_schema": PERSON, "select": "/name"}, {"json_schema": "name, age int, tags[]", "parsed": True},
    {"json_schema": '{"properties": {"a": {"type": "integer"}}}', "extra_properties": True}, {"json": True},
    {"json_schema": "name, age int", "constrain_after": "."},
    {"grammar": 'root ::= " " word (", " word)* "."\nword ::= [a-z]+ | "the " [a-z]+'},
)  # fmt: skip
OTHERS: tuple[Row, ...] = (  # what one back end compiles, or none
    {"lark": 'start: " " WORD ("," " " WORD)* "."\nWORD: /[a-z]{2,8}/'}, {"choice": [" Otto.", " Ottos"]},
)  # fmt: skip
LIMITS: tuple[Row, ...] = (
    {"max_tokens": 64}, {"max_tokens": 14, "retries": 2, "partial": True},
    {"max_tokens": 7, "finish_open": True}, {"max_tokens": 48, "jump_forward": "off", "top_p": 0.95},
)  # fmt: skip
SEARCHES: tuple[Row, ...] = (
    {"beams": 3, "n": 2}, {"beams": 4, "length_penalty": 0.4, "repetition_penalty": 1.3},
    {"beams": 2, "early_stopping": True, "stop": ["."], "min_tokens": 4},
    {"beams": 3, "json_schema": "name, age int", "finish_open": True},
    {"best_of": 4, "temperature": 0.9}, {"best_of": 3, "n": 2, "regex": "[A-Z][a-z]+ and [A-Z][a-z]+"},
)  # fmt: skip
STOPS: tuple[Row, ...] = (
    {"stop": [".", "\n"]}, {"stop": [" the ", "fox"], "include_stop": True}, {"stop": ["a", "bc"], "n": 2},
    {"stop_regex": ["[.!?g]"], "min_tokens": 10}, {"stop_regex": [" [a-z]{6,}"], "include_stop": True},
    {"stop_id": [19, 17, 98], "temperature": 0.7}, {"loop": 2, "temperature": 0, "ignore_eos": True},
)  # fmt: skip
AWAY: tuple[Row, ...] = (
    {"guidance": 2, "negative": "Story: A boy"}, {"guidance": 1.5, "top_p": 0.9, "n": 2}, {"guidance": 0},
    {"guidance": 0.5, "negative": "Dear Mia,", "draft": "ngram"}, {"guidance": 3, "json_schema": PERSON},
)  # fmt: skip
SHAPES: tuple[Row, ...] = (
    {"temperature": 0}, {"temperature": 0.3, "n": 2}, {"temperature": 1.4, "min_p": 0.1}, {"top_k": 2},
    {"top_p": 0.5, "n": 3}, {"temperature": 0.8, "top_k": 40, "top_p": 0.95}, {"sampler": "multinomial"},
    {"temperature": 1.6, "temperature_last": True, "top_k": 20}, {"sampler": "greedy"}, {"min_p": 0.02},
    {"chain": ["adjust", {"top_k": 30}, {"temperature": 1.2}, {"min_p": 0.05}]},
    {"stages": {"top_k": {"k": 9, "ties": "keep"}, "min_p": {"p": 0.4, "keep": 3}}},
)  # fmt: skip


def chains(seed: int, count: int, ids: range = range(260, 2040)) -> Iterator[Row]:
    """Yield random chains: one that shapes the distribution, and up to three compatible options."""
    rng = Random(seed)
    for _ in range(count):
        beside: tuple[Row, ...] = (
            {"repetition_penalty": rng.choice((0.8, 1.3))}, {"repetition_penalty": 1.5, "penalty_window": 8},
            {"frequency_penalty": 0.7, "penalty_scope": "both"}, {"presence_penalty": 0.9},
            {"ban": rng.sample((" the", "ing", "a", " and", "e "), 2)}, {"ignore_eos": True},
            {"suppress_ids": rng.sample(ids, 3)}, {"allow_ids": rng.sample(ids, len(ids) // 2)},
            {"logit_bias": [[id_, rng.choice((-4, 2))] for id_ in rng.sample(ids, 4)]}, {"min_tokens": 12},
        )  # fmt: skip
        chosen = [rng.choice(SHAPES), *rng.sample(beside, rng.randint(0, 3))]
        yield {key: value for part in chosen for key, value in part.items()}


def rows(*options: Row, seed: int) -> list[Row]:
    """Return rows with these options; each has the next seed and prompt."""
    return [{"prompt": PROMPTS[i % len(PROMPTS)], "seed": i} | more for i, more in enumerate(options, seed)]


def batches() -> Iterator[tuple[str, str, list[Row]]]:
    """Yield name, flags and rows of each batch."""
    for size, count in ((1, 12), (3, 24), (16, 36)):
        yield f"chain-of-{size}", f"--max-batch {size} --max-tokens 32", rows(*chains(size, count), seed=size)
    yield "fake-chain", f"{FAKE} --max-tokens 40", rows(*chains(77, 36, range(97, 123)), seed=77)
    for seed, (end, limit) in enumerate(product(("xgrammar", "llguidance"), LIMITS)):
        each = (one | limit | {"grammar_backend": end} for one in STRUCTURES[seed % 2 :: 1 + seed % 2])
        yield f"grammar-{seed}", "", rows(*each, seed=seed)
    yield "grammar-other", "--max-batch 2", rows(*(a | b for a, b in product(OTHERS, LIMITS[:3])), seed=5)
    drafted = [*chains(3, 4), {}, STRUCTURES[2]]
    policies = {"match": 6, "rejection": 3, "lossy-typical": 2, "lossy-threshold": 2}
    for draft, verify in product(("ngram", "suffix", "tiny-draft", "early-exit:2"), policies):
        flags = f"--draft {draft} --draft-tokens 3 --max-tokens 40 --verify {verify}"
        yield f"{draft}-{verify}", flags, rows(*drafted[-policies[verify] :], seed=21)
    weaker = rows({}, {"contrast_alpha": 0, "contrast_beta": 1}, {"contrast": "none"}, STRUCTURES[1], seed=41)
    yield "contrast", "--contrast tiny-draft --max-tokens 32", weaker
    for name, some in (("guidance", AWAY * 2), ("search", SEARCHES * 2), ("stop", STOPS)):
        yield name, "--max-tokens 32", rows(*some, seed=len(name))
    yield "fake-stop", f"{FAKE} --max-tokens 60", rows(*STOPS, seed=61)
    talks = [{"messages": [{"role": "user", "content": text}], "seed": 4} for text in CHATS]
    yield "messages", "--max-tokens 40 -t 0.7", talks
    for end, mode in product(("xgrammar", "llguidance"), ("auto", "required")):
        flags = f"--tools tools.json --tool-choice {mode} --grammar-backend {end}"
        yield f"tools-{end}-{mode}", flags, [a | b for a, b in zip(talks, LIMITS, strict=True)]
    yield "tag", "--structural-tag tag.json", rows(*LIMITS, seed=71)
    mixed = rows(*chains(91, 8), *STRUCTURES[:6], *AWAY, *SEARCHES, *STOPS, seed=92)
    yield "mixed", "--max-batch 5 --max-tokens 24", Random(94).sample(mixed, len(mixed))


# Presets that came later are the last, so that the others keep their seeds.
ADDED = ("creative-dry-xtc", "min-p", "roleplay", "top-n-sigma")


def runs() -> Iterator[tuple[str, list[str]]]:
    """Yield name and arguments of each `gencli run`."""
    paths = (Path(__file__).parents[1] / "configs").glob("*.yaml")
    for i, path in enumerate(sorted(paths, key=lambda path: (path.stem in ADDED, path.stem))):
        yield f"preset-{path.stem}", ["--preset", path.stem, "--max-tokens=32", f"--seed={i}", PROMPTS[i % 3]]
    for i, chat in enumerate(CHATS):
        yield f"chat-{i}", ["--chat", "--system=You tell sad stories.", f"-n{1 + i % 2}", f"--seed={i}", chat]
    yield "samples", ["-n5", "--max-batch=2", "--seed=4", "--max-tokens=24", *PROMPTS[:3]]
    yield "not-valid", ["--regex", "[a-z]{40,}", "--max-tokens", "3", "--seed", "1", PROMPTS[0]]


def called(*arguments: str) -> tuple[int, str]:
    """Return exit code and stdout of a command line, run in this process with empty stdin."""
    from gencli.__main__ import main  # the console script's entry point: all that is asked of the package

    sys.argv, sys.stdin = ["gencli", *arguments], io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which main ends with ignoring
    if code not in (0, 6, 7):  # neither done nor a text that is not valid: nothing was generated
        print(f"exit {code}: {' '.join(arguments)}\n{err.getvalue()}", file=sys.stderr)
    return code, out.getvalue()


def outputs() -> Iterator[tuple[str, str]]:
    """Yield name and output of all requests, in a temporary folder without user settings."""
    for key in [key for key in os.environ if key.startswith("GENCLI_")]:
        del os.environ[key]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        own = {f"XDG_{kind}_HOME": f"{folder}/{kind}" for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        os.environ |= own | {"HF_HUB_OFFLINE": "1"}
        Path("tools.json").write_text(json.dumps(TOOLS))
        Path("tag.json").write_text(json.dumps(TAG))
        for name, arguments in runs():
            code, out = called("run", *WHERE, *arguments)
            yield name, f"exit {code}\n{out}"
        for name, flags, given in batches():
            Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
            code, out = called("batch", "rows.jsonl", "--no-timings", *WHERE, *flags.split())
            yield name, f"exit {code}, {len(given)} rows"
            yield from ((f"{name}/{i}", line) for i, line in enumerate(out.split("\n")[:-1]))


def difference(before: str | None, after: str | None) -> str:
    """Return both outputs; for two rows only the fields that differ."""
    try:
        old, new = json.loads(before or ""), json.loads(after or "")
        pairs = {key: (old.get(key), new.get(key)) for key in old | new}
        return "; ".join(f"{key}: {a!r} -> {b!r}" for key, (a, b) in pairs.items() if a != b)
    except ValueError:
        return f"{before!r} -> {after!r}"


def main() -> int:
    """Print a line for each request; write the outputs, or compare them with a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, default=os.devnull, metavar="FILE")
    parser.add_argument("--check", type=lambda name: json.loads(Path(name).read_text()), metavar="FILE")
    told = parser.parse_args()
    found: dict[str, str] = {}
    for name, text in outputs():
        found[name] = text
        print(f"{name:32} {hashlib.sha256(text.encode()).hexdigest()}", flush=True)
    told.write.write_text(json.dumps(found, indent=0) + "\n")
    known = told.check or found
    differing = [name for name in known | found if known.get(name) != found.get(name)]
    for name in differing:
        print(f"DIFFERS {name}: {difference(known.get(name), found.get(name))}")
    print(f"{len(found)} outputs, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
