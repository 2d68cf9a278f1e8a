"""On a terminal no text of others is obeyed: each command is walked through with one hostile text."""

import io
import json
import shutil

import pytest
import torch

from gencli.cli.app import COMMANDS, make_app
from gencli.cli.render import Terminal
from gencli.explain.kept_logits import kept_fields
from gencli.models.files.local_models import bundled_folder
from processors.explain_rows import KeptLogits

pytest.importorskip("pty")


# Clipboard, title, colour, two ways to write CSI, text direction, an invisible character, the start of the
# line, and rich's markup.
HOSTILE = (
    "\x1b]52;c;cHdu\x07\x1b]0;pwn\x07\x1b[35;7;53m\x9b31m\u202e\u2066\u200bQ\rW[red]x[/red][link=f:/]y[/link]"
)


FAKE = ("-m", "fake", "--max-tokens", "3", "--seed", "1")


PLUGIN = """
from dataclasses import dataclass
from processors.base import Params, Processor
from processors.params import param
raise RuntimeError({text!r})
"""


def hostile_trace():
    """The lines of a trace of one token, whose texts are all hostile."""
    place = {"p": 0.5, "rank": 1, "logit": 0.0, "entropy": 1.0, "others": 0.1}
    place["top"] = [[1, HOSTILE, 0.5], [2, HOSTILE, 0.4]]
    stage = {"name": HOSTILE, "params": HOSTILE, "acted": True, "alive": [2, 1], "mass_kept": 0.5, **place}
    stage |= {"removed": [[2, HOSTILE, 0.5]], "changed": [], "note": HOSTILE}
    own = {"v": 1, "run": HOSTILE, "sample": 0}
    head = {"model": HOSTILE, "prompt": HOSTILE, "chain": [], "draw": "gumbel", "seed": 1}
    head |= {"prompt_ids": [1], "eos_ids": [0], "stop_ids": [], "max_tokens": 3}
    kept = kept_fields(KeptLogits.of(torch.tensor([0.0, 60.0, 20.0]), 3, seed=1))
    draw = {"kind": "gumbel", "margin": 1.0, "runner_up": [2, HOSTILE]}
    forgone = {"id": 2, "text": HOSTILE, "p": 0.5, "removed_by": HOSTILE}
    token = {
        "pos": 0, "id": 1, "text": HOSTILE, "bytes": "", "surprise": 1.0, "stages": [stage], "draw": draw,
    }  # fmt: skip
    token |= {"stages": [stage], "draw": draw, "raw": {**place, "alive": 2}, "final": {**place, "alive": 1}}
    token |= {"decided_by": [HOSTILE], "forgone": forgone, "logits": kept}
    return [{**own, "kind": "text", **head}, {**own, "kind": "token", **token}]


def hostile_tree():
    """The lines of a tree of two texts, all of which are hostile, and of a model that can be loaded."""
    head = {"run": HOSTILE, "sample": 0, "model": HOSTILE, "prompt": HOSTILE, "chain": [], "draw": HOSTILE}
    head |= {"seed": 1, "preset": "model: fake\n", "code": {}, "files": {}}
    node = {"token": HOSTILE, "text": HOSTILE, "ids": [*HOSTILE.encode()], "kept": 0, "p": 0.5, "seed": 1}
    node |= {"at": 0, "given": False, "reason": HOSTILE}
    nodes = [{"id": 0, "parent": None, **node}, {"id": 1, "parent": 0, **node}]
    return [{"v": 1, "kind": "tree", **head}, *({"v": 1, "kind": "node", **one} for one in nodes)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which every name and text that can be hostile is."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "configs").mkdir()
    (place / "configs" / "evil.yaml").write_text(f"# {HOSTILE}\nban: {json.dumps([HOSTILE])}\n")
    (place / f"{HOSTILE.replace('/', '|')}.yaml").write_text(f"{json.dumps(HOSTILE)}: 1\n")
    (place / "plugin.py").write_text(PLUGIN.format(text=HOSTILE))
    (place / "prompt.txt").write_text(HOSTILE)
    (place / "mark.key").write_text("5")
    schema = {"type": "object", "properties": {HOSTILE: {"type": "string", "pattern": HOSTILE}}}
    (place / "schema.json").write_text(json.dumps(schema))
    trace = hostile_trace()
    (place / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in trace))
    ended = [*trace, {"v": 1, "kind": "end", "run": HOSTILE, "sample": 0, "reason": HOSTILE}]
    (place / "ended.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ended))
    (place / "tree.jsonl").write_text("".join(json.dumps(line) + "\n" for line in hostile_tree()))
    rows = [
        {"id": HOSTILE, "prompt": HOSTILE},
        {"id": "b", "prompt": "x", HOSTILE: 1},
        {"id": "c", "top_k": 1},
    ]
    (place / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (place / "bad.jsonl").write_text(json.dumps({"id": "a", "prompt": "x", "choice": HOSTILE}) + "\n")
    model = place / "model"
    shutil.copytree(bundled_folder("tiny"), model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "architectures": [HOSTILE]}))
    (model / "chat_template.jinja").write_text(f"{{{{ raise_exception({json.dumps(HOSTILE)}) }}}}")
    broken = place / "broken"
    broken.mkdir()
    (broken / "config.json").write_text(json.dumps({"model_type": HOSTILE}))
    return place


WALK = {
    "run": [
        (*FAKE, "--choice", HOSTILE, "hi"),
        (*FAKE, "--choice", HOSTILE, "--format", "json", "hi"),
        (*FAKE, "--choice", HOSTILE, "--max-tokens", "200", "--color", "probability", "hi"),
        (*FAKE, HOSTILE, "hi", "--stats"),
        (*FAKE, HOSTILE, "hi", "--no-stream"),
        (*FAKE, "--file", "prompt.txt", "--file", "prompt.txt", "-n", "2"),
        (*FAKE, "--file", HOSTILE),
        (*FAKE, "--preset", HOSTILE, "hi"),
        (*FAKE, "--choice", HOSTILE, "--log", HOSTILE),
        (*FAKE, "--show-chain", "--ban", HOSTILE),
        (*FAKE, "--show-chain", "--preset", "evil"),
        (*FAKE, "--chain", HOSTILE, "hi"),
        (*FAKE, "--show-prompt", HOSTILE),
        (*FAKE, "--show-prompt", HOSTILE, "hi", "--chat", "--system", HOSTILE),
        (*FAKE, "--show-prompt", "--template", "{{ prompt }}{{ x }}", "--var", f"x={HOSTILE}", "hi"),
        (*FAKE, "--template", HOSTILE),
        (*FAKE, "--template", f"{{% {HOSTILE} %}}"),
        (*FAKE, "--template", f"{{{{ {json.dumps(HOSTILE)}.a.b }}}}"),
        (*FAKE, "--template", "{{ x }}", "--var", HOSTILE),
        (*FAKE, "--stop-regex", f"({HOSTILE}", "hi"),
        (*FAKE, "--regex", f"({HOSTILE}", "hi"),
        (*FAKE, "--grammar", f"root ::= {HOSTILE}\n", "hi"),
        (*FAKE, "--json-schema", "schema.json", "hi"),
        (*FAKE, "--json-schema", HOSTILE, "hi"),
        (*FAKE, "--tools", HOSTILE, "hi"),
        (*FAKE, "--plugin", "./plugin.py", "hi"),
        (*FAKE, "--output", f"none/{HOSTILE}", "hi"),
        ("-m", HOSTILE, "hi"),
        ("-m", "model", "--chat", "hi"),
        ("-m", "broken", "hi"),
        (f"--{HOSTILE}",),
        (*FAKE, "--temperature", HOSTILE, "hi"),
    ],
    "batch": [
        ("rows.jsonl", *FAKE, "-o", "-", "--keep-input"),
        ("rows.jsonl", *FAKE, "-o", "-", "--format", "csv"),
        ("rows.jsonl", *FAKE, "--dry-run"),
        ("bad.jsonl", *FAKE, "-o", "-"),
        ("rows.jsonl", *FAKE, "--template", f"{{{{ row[{json.dumps(HOSTILE)}] }}}}", "-o", "-"),
        ("rows.jsonl", *FAKE, "--template", f"{{% {HOSTILE} %}}", "-o", "-"),
        (HOSTILE, *FAKE),
        ("rows.jsonl", *FAKE, "-o", HOSTILE),
        ("rows.jsonl", "-m", HOSTILE, "-o", "-"),
    ],
    "chat": [("-m", HOSTILE), ("--preset", HOSTILE), ("-m", "model", "--system", HOSTILE)],
    "models": [
        ("list", "."), ("list", HOSTILE), ("show", "model"), ("show", HOSTILE), ("rm", HOSTILE),
        ("alias", HOSTILE, HOSTILE), ("show", "broken"), (HOSTILE,),
    ],
    "log": [
        ("list",), ("show", "last"), ("search", HOSTILE), ("rerun", "last"), ("show", HOSTILE), (HOSTILE,),
    ],
    "man": [(HOSTILE,)],
    "schema": [("audit", "schema.json"), ("audit", HOSTILE), ("audit", "./none.json"), (HOSTILE,)],
    "tokenize": [
        (HOSTILE, "-m", "fake"),
        (HOSTILE, "-m", "fake", "--chat", "--show-prompt"),
        ("-m", HOSTILE, "x"),
        ("-m", "fake", "--decode", "27,91,51,49,109"),
    ],
    "detect": [
        (HOSTILE, "-m", "fake", "--watermark", "gumbel", "--watermark-key", "mark.key"),
        (
            HOSTILE * 40, "-m", "fake", "--watermark", "gumbel", "--watermark-key", "mark.key", "--window",
            "16",
        ),
        (HOSTILE, "--watermark", "kgw", "--watermark-key", HOSTILE),
        (HOSTILE, "--watermark", "kgw", "--watermark-key", "prompt.txt"),
    ],
    "quantize": [(HOSTILE, "out"), ("tiny", HOSTILE, "--bits", HOSTILE)],
    "score": [
        (HOSTILE,),
        ("-m", "fake", "--input-format", "jsonl", "schema.json"),
        ("--convention", HOSTILE),
    ],
    "compare": [
        (*FAKE, "--a", "", "--b", "top_k=3", HOSTILE),
        (*FAKE, "--a", HOSTILE, "--b", HOSTILE, "x"),
        (*FAKE, "--a", "", "--b", "evil", "x"),
        (*FAKE, "--a", "", "--b", f"ban={json.dumps([HOSTILE])}", "x"),
        ("--trace", "trace.jsonl", "--b", "suppress=[1]"),
        ("--trace", HOSTILE, "--b", ""),
    ],
    "explain": [
        ("trace.jsonl",),
        ("trace.jsonl", "--at", "0"),
        ("ended.jsonl", "--live"),
        (*FAKE, HOSTILE),
        (*FAKE, HOSTILE, "--why", HOSTILE),
        ("--logits-file", HOSTILE),
    ],
    "sweep": [
        (*FAKE, "--vary", "seed=1,2", HOSTILE),
        (*FAKE, "--vary", f"seed={HOSTILE}", "hi"),
        (*FAKE, "--vary", HOSTILE, "hi"),
        (*FAKE, "--vary", "seed=1,2", "--format", "csv", HOSTILE),
    ],
    "fork": [
        ("trace.jsonl", "--at", "0"),
        ("show", "tree.jsonl"),
        ("tree.jsonl", "--at", "0", "--token", HOSTILE),
        ("tree.jsonl", "--at", "0", "--token", "a"),
        (HOSTILE, "--at", "0"),
        ("show", HOSTILE),
        ("walk", "tree.jsonl"),
    ],
    "doctor": [()],
    "completion": [(HOSTILE,)],
    "stages list": [("--plugin", "./plugin.py"), ("--plugin", HOSTILE)],
    "stages show": [(HOSTILE,)],
    "stages check": [("plugin.py",), (HOSTILE,)],
    "config list": [()],
    "config show": [("--preset", "evil"), ("--preset", "evil", "--format", "yaml"), (HOSTILE,)],
    "config lint": [(f"{HOSTILE.replace('/', '|')}.yaml",), (HOSTILE,)],
    "config diff": [("evil", "creative"), (HOSTILE, "evil")],
    "config schema": [("--plugin", HOSTILE)],
    "config edit": [()],  # with an editor of a hostile name
    "config import": [(HOSTILE,)],
    "config export": [("--preset", "evil"), ("--stop", HOSTILE)],
    "config path": [()],
    "bench run": [("--model", HOSTILE)],
    "serve": [("--model", HOSTILE), ("--api-key-file", HOSTILE), ("--host", HOSTILE), ("--preset", HOSTILE)],
}  # fmt: skip


def commands():
    """Every command by its words, those of groups included."""
    from typer.main import get_command

    for name, command in get_command(make_app(COMMANDS)).commands.items():
        inner = getattr(command, "commands", None)
        yield from (f"{name} {word}" for word in inner) if inner else [name]


def test_a_stream_of_pieces_shows_what_the_whole_text_does():
    for text in [HOSTILE, "\U0001f468\u200d\U0001f469 \u0645\u06cc\u200c\u062e", "a\u200d\u200d"]:
        streams = [io.StringIO() for _ in range(3)]
        Terminal(streams[0]).write(text)
        Terminal(streams[1]).writelines(text)
        pieces = Terminal(streams[2])
        for start in range(0, len(text), 3):
            pieces.write(text[start : start + 3])
            pieces.write("")
        assert len({stream.getvalue() for stream in streams}) == 1, text

    stream = io.StringIO()
    Terminal(stream).draw("\x1b[J")
    assert stream.getvalue() == "\x1b[J"


def test_every_command_is_walked_through():
    assert sorted(WALK) == sorted(commands())
