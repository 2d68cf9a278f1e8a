"""Model folders that are wrong or hostile: each is refused with its own reason, before weights are read."""

import json
import os
import shutil
from pathlib import Path

import pytest

from gencli.errors import ModelError
from gencli.models.files.card import read_card
from gencli.models.files.checkpoint import open_checkpoint
from gencli.models.files.locate import bundled_folder
from gencli.models.files.template import declared_template
from gencli.templates import renderer as renderer_module
from gencli.text.tokenizer import HFTokenizer
from processors.child import Child

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
TURN = [{"role": "user", "content": "hi"}]


@pytest.fixture
def folder(tmp_path):
    """A copy of the bundled model."""
    return Path(shutil.copytree(bundled_folder("tiny-draft"), tmp_path / "model"))


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def refusal(folder):
    with pytest.raises(ModelError) as caught:
        open_checkpoint(str(folder), trust_remote_code=False)
    return caught.value.message


def test_a_model_that_fits_is_opened(folder):
    assert open_checkpoint(str(folder), trust_remote_code=False).stored == "F32"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", -1),
        ("num_hidden_layers", "3"),
        ("num_hidden_layers", 2.5),
        ("num_hidden_layers", True),
        ("hidden_size", 0),
        ("num_attention_heads", -2),
        ("vocab_size", 10**18),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", 10**18),
        ("eos_token_id", "end"),
        ("eos_token_id", [0, {}]),
        ("dtype", "nonsense"),
        ("torch_dtype", "nn"),
        ("quantization_config", {"quant_method": "x"}),
        ("quantization_config", "x"),
        ("text_config", "x"),
    ],
)
def test_a_value_that_no_model_has_is_named(folder, key, value):
    change(folder / "config.json", **{key: value})
    message = refusal(folder)
    assert key.removeprefix("torch_") in message
    assert "config.json" in message


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10**6},
        {"vocab_size": 10**9},
        {"intermediate_size": 77},
        {"hidden_size": 4 * 10**8, "head_dim": 10},
    ],
    ids=str,
)
def test_weights_that_are_not_those_of_the_configuration_are_not_read(folder, values):
    change(folder / "config.json", **values)
    message = refusal(folder)
    assert "config.json asks for" in message
    assert "the weights hold" in message


@pytest.mark.parametrize("values", [{"num_attention_heads": 0}, {"rope_parameters": "x"}], ids=str)
def test_a_configuration_that_the_library_refuses_is_not_the_fault_of_the_tokenizer(folder, values):
    change(folder / "config.json", **values)
    message = refusal(folder)
    assert "config.json" in message
    assert "okenizer" not in message


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_a_file_that_is_nested_too_deep_is_named(folder, name):
    (folder / name).write_text("[" * 200_000)
    assert name in refusal(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "added_tokens.json",
        "merges.txt",
        "chat_template.jinja",
        "additional_chat_templates/a.jinja",
        "model.safetensors",
    ],
)
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_named(folder, name, kind):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    assert kind in refusal(folder)
    if name != "config.json":
        with pytest.raises(ModelError, match=kind):
            HFTokenizer.load(folder)


@pytest.mark.parametrize("index", [[], {"weight_map": []}, {"weight_map": {"a": 1}}, {}], ids=str)
def test_an_index_that_is_none_is_named(folder, index):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model.safetensors.index.json" in refusal(folder)


@pytest.mark.parametrize(
    "template",
    [
        '{{ "%1000000000d"|format(1) }}',
        '{{ "x" * 10**10 }}',
        '{{ "x".ljust(10**10) }}',
        '{% set n = namespace(x="x") %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}',
        ENDLESS,
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ lipsum(n=1000000) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ messages.__class__.__mro__ }}",
        "{% if %}",
    ],
    ids=lambda text: text[:40],
)
def test_a_chat_template_is_bounded_in_time_memory_and_size(folder, template, monkeypatch):
    monkeypatch.setattr(renderer_module, "SECONDS", 1.0)
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = HFTokenizer.load(folder)
    with pytest.raises(ModelError, match=r"The chat template of .* failed: .+"):
        tokenizer.render_chat(TURN)


TEMPLATES = [
    bundled_folder("tiny").joinpath("chat_template.jinja").read_text(),
    "{%- for m in messages %}\n    {%- if loop.first and m.role != 'system' %}\n{{ bos_token }}sys\n    "
    "{%- endif %}\n<|{{ m['role'] }}|>{{ m['content'] | trim }}{% endfor %}\n",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m | tojson(indent=2) }}"
    "{% endfor %}",
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if tools is none %}none{% endif %}{{ mood }}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}{{ documents }}{{ missing }}",
    "{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
]


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_a_chat_template_gives_what_transformers_makes_of_it(folder, template):
    from transformers import AutoTokenizer

    (folder / "chat_template.jinja").write_text(template)
    messages = [{"role": "system", "content": " <b>\u00e9 "}, *TURN, {"role": "assistant", "content": "a\n"}]
    tools = [{"type": "function", "function": {"name": "f", "description": "\u2603"}}]
    theirs, ours = AutoTokenizer.from_pretrained(folder), HFTokenizer.load(folder)
    for kwargs in ({}, {"tools": tools}, {"mood": "!", "add_generation_prompt": False}):
        want = theirs.apply_chat_template(
            messages, tokenize=False, **{"add_generation_prompt": True, **kwargs}
        )
        assert ours.render_chat(messages, **kwargs) == want


def test_the_next_template_is_rendered_after_one_that_had_to_be_ended(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer_module, "SECONDS", 0.5)
        (folder / "chat_template.jinja").write_text(
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        )
        with pytest.raises(ModelError, match="did not end within"):
            HFTokenizer.load(folder).render_chat(TURN)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert HFTokenizer.load(folder).render_chat(TURN) == "hi"


def test_a_bundled_model_needs_no_process_for_its_template(monkeypatch):
    monkeypatch.setattr(renderer_module.renderer, "render", None)
    assert "hi" in HFTokenizer.load(bundled_folder("tiny")).render_chat(TURN)


def test_a_tokenizer_that_panics_is_the_fault_of_the_model(folder):
    found = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    found["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, found["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(found))
    tokenizer = HFTokenizer.load(folder)
    assert tokenizer.encode("ab")
    with pytest.raises(ModelError, match="The tokenizer of .* failed on a text"):
        tokenizer.encode("a" * 28 + "b")


def test_a_process_that_dies_is_told_from_one_that_is_late():
    child = Child("gencli.templates.worker")
    assert child.ask(None, 60).error == ""
    child.close()
    assert not child.is_alive


@pytest.mark.parametrize(
    "values",
    [
        {"layer_types": [[]]},
        {"architectures": 3},
        {"hidden_size": "x", "layer_types": 1},
    ],
    ids=str,
)
def test_a_card_of_a_configuration_with_wrong_values_is_an_error_of_the_model(folder, values):
    change(folder / "config.json", **values)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_card(folder)


@pytest.mark.parametrize("head", ['{"a": 1}', '{"a": {"dtype": "F32", "shape": "x"}}', "[" * 100_000, "[]"])
def test_a_damaged_head_of_a_weight_file_is_named(folder, head):
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head.encode())
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        read_card(folder)
    assert "damaged" in refusal(folder)


@pytest.mark.parametrize("tokens", [[], {"1": "x"}, {"1": None}], ids=str)
def test_what_a_tokenizer_configuration_declares_is_taken_only_where_it_is_of_its_kind(folder, tokens):
    change(folder / "tokenizer_config.json", added_tokens_decoder=tokens, chat_template=["x", 1])
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    assert declared_template(str(folder))[0] is None
