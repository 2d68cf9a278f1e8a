"""Where a prompt comes from: arguments, files, pipes, templates."""

import io
import json
import os
import shutil

import pytest
import torch
from safetensors.torch import save_file

from gencli.cli import inputs as prompts
from gencli.cli.inputs import Prompts, read_prompts
from gencli.errors import UsageError
from gencli.models.files.local_models import bundled_folder
from gencli.templates.prompt_templates import PromptTemplate


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_is_empty_or_no_text_is_refused(run, tmp_path):
    for data in [b"", b"\n"]:
        run(stdin=data).refused("The input (stdin) is empty")

    (tmp_path / "x").write_bytes(b"ab\xff")
    for result in (run(stdin=b"ab\xff"), run("--file", tmp_path / "x")):
        assert result.code == 2
        assert "byte 0xff at offset 2" in result.err


def test_the_hint_of_a_missing_prompt_names_the_command(gencli):
    for words, with_file in [
        (("run",), True),
        (("explain",), True),
        (("sweep", "--vary", "top_p=0.5,1"), True),
        (("compare", "--a", "top_k=3", "--b", "top_k=4"), True),
        (("tokenize",), False),
    ]:
        result = gencli(*words)
        result.refused("The input (stdin) is empty", f'(gencli {words[0]} "Once upon a time")')
        assert ("--file" in result.err) == with_file, words


def test_what_is_piped_in_beside_a_prompt_is_text_of_a_bounded_length(run, monkeypatch):
    assert "byte 0xff at offset 2" in run("hi", stdin=b"ab\xff").err
    monkeypatch.setattr(prompts, "MAX_PROMPT", 1 << 20)
    for arguments in (["hi"], [], ["-"], ["{stdin}"]):
        run(*arguments, stdin=b"a" * (1 << 20) + b"b").refused("more than 1,048,576 bytes")


def test_the_tokens_of_a_text_are_those_of_the_prompt_of_a_run(gencli):
    result = gencli("tokenize", "hi", stdin=b"there")
    assert result.out == gencli("tokenize", "hi\n\nthere").out
    assert "5 characters of stdin" in result.err


@pytest.fixture
def given_to(monkeypatch):
    """Call `given_to(handle)`: the prompt `hi` with this handle as stdin."""
    monkeypatch.setattr(prompts, "PATIENCE", 0.2)

    def read(handle, *arguments):
        with os.fdopen(handle, "r", closefd=False) as stream:
            monkeypatch.setattr("sys.stdin", stream)
            return read_prompts(arguments or ["hi"], [])

    return read


def test_a_redirected_file_is_read_as_a_pipe_is(given_to, tmp_path):
    for content, expected in [(b"", "hi"), (b"text\n", "hi\n\ntext")]:
        (tmp_path / "x").write_bytes(content)
        handle = os.open(tmp_path / "x", os.O_RDONLY)
        assert given_to(handle).texts == (expected,), content
        os.close(handle)
        null = os.open(os.devnull, os.O_RDONLY)
        assert given_to(null) == Prompts(("hi",)), content
        os.close(null)


def test_without_a_stdin_a_prompt_stands_alone_and_asks_for_none(monkeypatch):
    for stream in (None, _Terminal()):
        monkeypatch.setattr("sys.stdin", stream)
        assert read_prompts(["hi"], []) == Prompts(("hi",))
        with pytest.raises(UsageError, match="nothing is piped in"):
            read_prompts(["{stdin}"], [])

    monkeypatch.setattr("sys.stdin", _Terminal())
    with pytest.raises(UsageError, match="There is no prompt"):
        read_prompts([], [])


def test_chat_without_a_template_is_refused_before_weights_are_read(gencli, tmp_path):
    folder, model = bundled_folder("tiny"), tmp_path / "model"
    model.mkdir()
    for path in folder.iterdir():
        if path.name != "chat_template.jinja" and path.suffix != ".safetensors":
            (model / path.name).symlink_to(path)
    save_file({"none of the weights": torch.zeros(1)}, model / "model.safetensors")
    for command, said, row in [
        ("run", "--chat", {}),
        ("chat", "--quiet", {}),
        ("batch", "--chat", {"prompt": "hi"}),
        ("batch", "--quiet", {"messages": [{"role": "user", "content": "hi"}]}),
    ]:
        (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{{\n")
        more = {"run": ["hi"], "chat": [], "batch": [tmp_path / "rows.jsonl"]}[command]
        gencli(command, "--model", model, said, *more, stdin=b"hi\n").refused(
            "no chat template", "raw", code=5
        )


def test_a_model_that_is_nowhere_names_the_nearest(gencli, tmp_path):
    result = gencli("run", "--model", "tnyi", "hi")
    assert (result.code, result.out) == (5, "")
    assert "tnyi is neither" in result.err
    assert "Did you mean 'tiny'?" in result.err

    for name in ("foo.gguf", tmp_path / "foo.gguf"):
        result = gencli("run", "--model", name, "hi")
        assert (result.code, "There is no file" in result.err, "pull" in result.err) == (5, True, False)


def test_a_model_that_is_no_file_is_named_as_what_it_is(gencli, tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "dead.gguf").symlink_to(tmp_path / "nowhere")
    for name, kind in (
        (tmp_path / "pipe.gguf", "a pipe, but has to be a GGUF file"),
        (tmp_path / "dead.gguf", "a link to nothing, but has to be a GGUF file"),
        ("/dev/null", "a device, but has to be a folder or a GGUF file"),
    ):
        result = gencli("run", "--model", name, "hi")
        assert (result.code, result.err) == (5, f"Error: {name} is {kind}.\n")


def test_ctrl_c_while_the_prompt_is_typed_is_an_interrupt(gencli, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prompts, "read_stream", interrupted)
    result = gencli("run", "--model", "fake", "-")
    assert (result.code, result.out, result.err) == (130, "", "Interrupted.\n")


SHOW = ("-m", "fake", "--show-prompt")


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "gencli" / "templates"
    folder.mkdir(parents=True)
    return folder


def test_a_template_is_filled_with_prompt_stdin_and_variables(gencli, tmp_path):
    for arguments, stdin, shown in [
        (("{{ prompt }} in {{ lang }}", "--var", "lang=French", "hi"), None, "hi in French\n"),
        (("{{ stdin }}|{{ prompt }}", "hi"), b"notes\n", "notes|hi\n"),
        (("{{ stdin }}|{{ prompt }}", "a {stdin}"), b"notes", "notes|a notes\n"),
        (("{{ stdin }}|{{ prompt }}", "-"), b"notes", "notes|notes\n"),
        (("{{ stdin }}",), b"notes", "notes\n"),
        (("<{{ prompt }}>",), b"notes", "<notes>\n"),
        (("<{{ prompt }}>", "hi"), b"notes", "<hi\n\nnotes>\n"),
        (("always {# so #}",), b"notes", "always \n\nnotes\n"),
        (("{{ prompt or 1 }}{{ x | default('y') }}", "hi"), None, "hiy\n"),
        (("{{ prompt }}{% if x is defined %}!{% endif %}", "hi"), None, "hi\n"),
        (("{{ prompt }}{{ x }}", "--var", "x=a=b", "hi"), None, "hia=b\n"),
    ]:
        done = gencli("run", *SHOW, "--template", *arguments, stdin=stdin or b"")
        assert (done.code, done.out) == (0, shown), done.err

    form = ("--template", "<{{ prompt }}>", "--format", "json")
    assert [one["rendered"] for one in gencli("run", *SHOW, *form, "a", "b").json] == ["<a>", "<b>"]
    (tmp_path / "a.txt").write_text("c\n")
    assert gencli("run", *SHOW, *form, "--file", tmp_path / "a.txt").json["rendered"] == "<c>"

    base = ("run", "-m", "fake", "--seed", "3", "--max-tokens", "9", "--format", "json", "-n", "2")
    ways = gencli(*base, "ab cd"), gencli(*base, "--template", "ab {{ prompt }}", "cd")
    assert ways[0].json["prompt"] == ways[1].json["prompt"] == "ab cd"
    assert ways[0].json["texts"] == ways[1].json["texts"]


def test_what_a_template_cannot_use_is_refused_before_the_model_loads(gencli):
    for arguments, said in [
        (("--var", "x=1", "hi"), ["--var is given", "no template"]),
        (("--template", "{{ prompt }}", "--var", "lang=1", "hi"), ["no variable 'lang'", "It uses: prompt"]),
        (("--template", "{{ prompt }}{{ lang }}", "--var", "lnag=1", "hi"), ["'lnag'", "mean 'lang'"]),
        (("--template", "{{ prompt }}{{ lang }}", "hi"), ["'lang', which has no value", "--var lang=TEXT"]),
        (("--template", "{{ stdin | upper }}", "hi"), ["prompt that is given would be lost"]),
        (("--template", "{{ prompt }}{{ x }}", "--var", "x=1", "--var", "x=2", "hi"), ["two values"]),
        (("--template", "{{ prompt }}", "--var", "x", "hi"), ["NAME=TEXT"]),
        (("--template", "{{ x }}", "--var", "x="), ["prompt that the template makes is empty"]),
        (("--template", "{{ prompt }}{{ row }}", "--var", "row=x", "hi"), ["'row'", "two values"]),
        (("--template", "{% if %}", "hi"), ["--template, line 1", "not a Jinja template"]),
        (("--template", "none.j2", "hi"), ["none.j2", "not a readable file"]),
        (("--template", "nothing", "hi"), ["There is no template 'nothing'"]),
        (("--show-prompt", "--show-chain", "hi"), ["--show-chain", "--show-prompt"]),
    ]:
        gencli("run", "-m", "/nowhere/model", *arguments).refused(*said)


def test_a_template_with_stdin_needs_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match="nothing is piped in"):
        read_prompts((), (), PromptTemplate("{{ stdin }}"))
    assert read_prompts((), (), PromptTemplate("a")).texts == ("a",)
    with pytest.raises(UsageError, match="no prompt"):
        read_prompts((), (), PromptTemplate("{{ prompt }}"))


def test_a_name_is_looked_for_beside_the_work_and_in_the_users_folder(
    gencli, tmp_path, monkeypatch, user_folder
):
    monkeypatch.chdir(tmp_path)
    (user_folder / "ask.jinja").write_text("user {{ prompt }}\n")
    assert gencli("run", *SHOW, "--template", "ask", "hi").out == "user hi\n"
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "ask.j2").write_text("here {{ prompt }}\n")
    assert gencli("run", *SHOW, "--template", "ask", "hi").out == "here hi\n"
    assert "Did you mean 'ask'" in gencli("run", *SHOW, "--template", "aks", "hi").err
    assert gencli("run", *SHOW, "--template", "./templates/ask.j2", "hi").out == "here hi\n"
    paths = gencli("config", "path").out
    assert str(user_folder) in paths
    assert str(tmp_path / "templates") in paths


def test_a_preset_has_a_template_beside_it_and_variables_that_flags_override(gencli, tmp_path):
    (tmp_path / "ask.j2").write_text("{{ prompt }}, {{ tone }}, in {{ lang }}\n")
    preset = tmp_path / "ask.yaml"
    preset.write_text("template: ask.j2\nvars: {lang: French, tone: kind}\n")
    run = ("run", *SHOW, "--preset", preset)
    assert gencli(*run, "hi").out == "hi, kind, in French\n"
    assert gencli(*run, "--var", "lang=Dutch", "hi").out == "hi, kind, in Dutch\n"
    assert gencli(*run, "--template", "{{ prompt }}!", "hi").out == "hi!\n"
    exported = gencli("config", "export", "--preset", preset, "--var", "lang=Dutch").out
    (tmp_path / "again").mkdir()
    again = tmp_path / "again" / "x.yaml"
    again.write_text(exported)
    assert gencli("run", *SHOW, "--preset", again, "hi").out == "hi, kind, in Dutch\n"


def test_rows_and_chats_have_no_template_and_variables_are_texts(gencli, tmp_path):
    preset = tmp_path / "ask.yaml"
    preset.write_text("template: '{{ n }}'\nvars: {n: 3}\n")
    assert "vars has 3 in it, where there has to be" in gencli("run", "--preset", preset, "hi").err

    for key in ["template", "vars"]:
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"prompt": "a", key: "b"}) + "\n")
        done = gencli("batch", "-m", "fake", rows)
        assert f"{key} is set for the whole run" in done.out + done.err, key

    (tmp_path / "ask.yaml").write_text("template: '{{ prompt }}!'\n")
    gencli("chat", "-m", "fake", "--preset", tmp_path / "ask.yaml", stdin=b"hi\n").refused("ask.yaml:1")


def test_the_template_of_a_preset_makes_the_prompts_of_a_batch(gencli, tmp_path):
    (tmp_path / "ask.yaml").write_text("template: '{{ q }} in {{ lang }}'\nvars: {lang: French}\n")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"q": "hi"}\n')
    batch = ("batch", "-m", "fake", "--max-tokens", "2", "--preset", tmp_path / "ask.yaml", rows)
    assert json.loads(gencli(*batch).out)["prompt"] == "hi in French"
    assert json.loads(gencli(*batch, "--var", "lang=Dutch").out)["prompt"] == "hi in Dutch"
    assert "contradict" in (done := gencli(*batch, "--prompt-column", "q")).err or done.code == 2
    rows.write_text('{"q": "hi", "lang": "x"}\n')
    assert "'lang' of the template has two values" in gencli(*batch).out


def test_show_prompt_has_the_special_tokens_and_needs_no_weights(gencli, tmp_path):
    shutil.copytree(bundled_folder("tiny"), tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    expected = "<|bos|><|system|>Be brief.<|end|><|user|>hi<|end|><|assistant|>\n"
    chat = ("-m", tmp_path / "m", "--chat", "--system", "Be brief.", "--show-prompt", "hi")
    assert gencli("run", *chat).out == expected
    assert gencli("tokenize", *chat).out == expected
    raw = gencli("run", "-m", tmp_path / "m", "--show-prompt", "hi", "--format", "json").json
    assert raw["rendered"] == gencli("tokenize", "--show-prompt", "-m", tmp_path / "m", "hi").out.rstrip("\n")
    assert raw["ids"] == [one["id"] for one in gencli("tokenize", "hi", "--format", "json").json["tokens"]]

    assert gencli("run", *SHOW, "a", "b").out == "==> 1: a <==\na\n\n==> 2: b <==\nb\n"
    lines = gencli("run", *SHOW, "a", "b", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["rendered"] for line in lines] == ["a", "b"]


def test_a_chat_shows_the_conversation_as_the_model_gets_it(gencli):
    done = gencli("chat", "--max-tokens", "3", "--seed", "1", stdin=b"/prompt\nHi\n/prompt\n")
    assert "No turn yet" in done.err
    answer = done.out.rstrip("\n")
    assert f"<|bos|><|user|>Hi<|end|><|assistant|>{answer}" in done.err


def test_tokenize_refuses_what_it_would_ignore(gencli):
    for arguments, said in [
        (("--decode", "1", "--chat"), "--decode and --chat"),
        (("--decode", "1", "--show-prompt"), "--decode and --show-prompt"),
        (("--chat", "--no-special", "hi"), "--no-special do not go with --chat"),
        (("--system", "x", "hi"), "--system needs --chat"),
    ]:
        gencli("tokenize", *arguments).refused(said)
