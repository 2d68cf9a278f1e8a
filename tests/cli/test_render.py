"""What a terminal and a pipe get: tables, wrapped words, lines of messages; hostile text is not obeyed."""

import io
import json
import os
import re
import shutil
import sys

import pytest
import torch

from gencli.cli.app import COMMANDS, main, make_app
from gencli.cli.render import Terminal, WordWrap, cell_width, table
from gencli.explain.logits_file import kept_fields
from gencli.models.files.local_models import bundled_folder
from gencli.models.other_runners import FakeRunner
from processors.explain_rows import KeptLogits
from tests.helpers.terminals import until_closed


def test_a_wide_character_takes_two_cells():
    assert table([("a", "1"), ("港口", "2"), ("e\u0301", "3")]) == "a     1\n港口  2\ne\u0301     3\n"


ROWS = [("name", "what it is for", "origin"), ("top_p", "cut the tail of the distribution", "preset mine:3")]


@pytest.mark.parametrize("width", [30, 36, 44, 60, 200])
def test_a_table_fits_its_terminal_and_breaks_no_word(width):
    lines = table(ROWS, width).splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(row) for row in ROWS).split()
    assert sorted(" ".join(lines).split()) == sorted(words)
    assert (lines == table(ROWS, 0).splitlines()) is (width >= 60)


def test_columns_without_room_follow_below_beside_the_first():
    rows = [("stage", *"abcdef"), ("top_k", *(str(number) * 6 for number in range(6)))]
    assert table(rows, 30).splitlines() == [
        "stage  a       b       c",
        "top_k  000000  111111  222222",
        "",
        "stage  d       e       f",
        "top_k  333333  444444  555555",
    ]


def screen(sent, width):
    """The lines of a terminal that was sent these characters; a line's end only moves on the next one."""
    lines, column, codes = [""], 0, iter(sent)
    for char in codes:
        if char == "\n":
            lines.append("")
            column = 0
        elif char == "\r":
            column = 0
        elif char == "\x1b":
            number = ""
            while not (char := next(codes)).isalpha():
                number += char.strip("[")
            if char == "C":
                column = int(number)
            elif char == "K":
                lines[-1] = lines[-1][:column]
        else:
            if column + cell_width(char) > width:
                lines.append("")
                column = 0
            lines[-1] += char
            column += cell_width(char)
    return lines


def shown(parts, width, codes=("", "")):
    wrap = WordWrap()
    return screen("".join(wrap.feed(part, width, codes) for part in parts), width)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("codes", [("", ""), ("\x1b[1m", "\x1b[0m")])
def test_lines_break_between_words_however_the_text_arrives(size, codes):
    text = "The quick brown fox\njumps over  the lazy dog."
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert shown(parts, 10, codes) == ["The quick ", "brown fox", "jumps over", "the lazy ", "dog."]


def test_what_no_line_holds_is_left_to_the_terminal():
    assert shown(["see ", "abcdefgh", "ijkl", " end"], 8) == ["see ", "abcdefgh", "ijkl end"]
    assert shown(["abcdefghijkl"], 8) == ["abcdefgh", "ijkl"]


def test_wide_characters_break_anywhere():
    assert shown(["ab 港口港", "口c"], 6) == ["ab 港", "口港口", "c"]


def test_space_that_crosses_the_edge_begins_no_line():
    assert shown(["1234567890 ", " x"], 10) == ["1234567890", "x"]
    assert shown(["a\tb cd"], 10) == ["a\tb ", "cd"]


def test_the_null_device_takes_the_result(gencli):
    assert gencli("run", "-m", "fake", "--max-tokens", "2", "--output", os.devnull, "hi").code == 0


pty = pytest.importorskip("pty")
FAULT = "CUDA error: an illegal memory access was encountered"
LETTERS = ("-m", "fake", "--seed", "1", "--allow-ids", "97,98,99,100")


@pytest.fixture
def lost(monkeypatch):
    """The device of the fake model is lost in the fifth step."""
    steps, forward = [], FakeRunner.forward

    def failing(self, plan):
        steps.append(plan)
        if len(steps) % 5 == 0:
            raise torch.AcceleratorError(FAULT)
        return forward(self, plan)

    monkeypatch.setattr(FakeRunner, "forward", failing)


@pytest.fixture
def on_screen(monkeypatch, lost):
    """Call a command with these streams on one terminal without colours; return what that shows."""
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments, streams=("stdout", "stderr")):
        leader, follower = pty.openpty()
        with monkeypatch.context() as patched:
            for name in streams:
                patched.setattr(sys, name, os.fdopen(os.dup(follower), "w", encoding="utf-8"))
            main([str(argument) for argument in arguments])
            for name in streams:
                getattr(sys, name).close()
        os.close(follower)
        return until_closed(leader).decode().replace("\r\n", "\n")

    return call


def test_a_run_or_an_answer_that_fails_in_a_line_ends_it(on_screen, monkeypatch):
    assert re.match(r"[abcd]{4}\nError: The GPU has failed", on_screen("run", *LETTERS, "Hello"))

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Hello\n")))
    shown = on_screen("chat", *LETTERS, "--raw")
    assert re.search(r"^[abcd]{4}\nError: The GPU has failed", shown, re.MULTILINE)

    monkeypatch.delenv("NO_COLOR")
    shown = on_screen("run", *LETTERS, "--choice", "a", "--constrain-after", "#", "Hello")
    assert re.search(r"\[thinking\] [abcd]{4}\nError: The GPU has failed", shown)


def test_a_batch_that_fails_ends_its_progress(on_screen, tmp_path, monkeypatch):
    for colours in [True, False]:
        with monkeypatch.context() as patch:
            if colours:
                patch.delenv("NO_COLOR")
            rows = tmp_path / "rows.jsonl"
            rows.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
            shown = on_screen("batch", rows, *LETTERS, "-o", "-")
            assert re.search(r"(^|\x1b\[\?25h)Error: The GPU has failed", shown, re.MULTILINE), colours
            assert "\n\n" not in shown, colours


def test_a_pipe_gets_the_text_alone(gencli, on_screen, capfd):
    done = gencli("run", *LETTERS, "Hello")
    assert re.fullmatch("[abcd]{4}", done.out)
    assert done.err.startswith("Error: ")
    assert on_screen("run", *LETTERS, "Hello", streams=["stderr"]).startswith(("Error: ", "\x1b", "\r"))
    assert capfd.readouterr().out == done.out


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
