"""Model folders that are wrong or hostile: each is refused with its own reason, before weights are read."""

import json

import pytest

from gencli.errors import ModelError
from gencli.models.files.local_models import bundled_folder
from gencli.templates import chat_templates as renderer_module
from gencli.text.tokenizer import HFTokenizer
from tests.models.cases import case
from tests.models.files.test_model_files import ENDLESS, TURN, change, folder, refusal

ATTACKS = [
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
]


def test_a_chat_template_is_bounded_in_time_memory_and_size(folder, monkeypatch):
    monkeypatch.setattr(renderer_module, "SECONDS", 0.4)
    for template in ATTACKS:
        (folder / "chat_template.jinja").write_text(template)
        with case(template[:60]), pytest.raises(ModelError, match=r"The chat template of .* failed: .+"):
            HFTokenizer.load(folder).render_chat(TURN)


WRITE = "{% for m in messages %}{{ m.content }}{% endfor %}"
TEMPLATES = [
    bundled_folder("tiny").joinpath("chat_template.jinja").read_text(),
    "{%- for m in messages %}\n    {%- if loop.first and m.role != 'system' %}\n{{ bos_token }}sys\n    "
    "{%- endif %}\n<|{{ m['role'] }}|>{{ m['content'] | trim }}{% endfor %}\n",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m | tojson(indent=2) }}"
    "{% endfor %}",
    "{% if tools %}{{ tools | tojson }}{% endif %}{% if tools is none %}none{% endif %}{{ mood }}" + WRITE,
    "{% generation %}" + WRITE + "{% endgeneration %}{{ documents }}{{ missing }}",
    WRITE
    + "{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
]


def test_a_chat_template_gives_what_transformers_makes_of_it(folder):
    from transformers import AutoTokenizer

    messages = [{"role": "system", "content": " <b>\u00e9 "}, *TURN, {"role": "assistant", "content": "a\n"}]
    tools = [{"type": "function", "function": {"name": "f", "description": "\u2603"}}]
    for template in TEMPLATES:
        (folder / "chat_template.jinja").write_text(template)
        theirs, ours = AutoTokenizer.from_pretrained(folder), HFTokenizer.load(folder)
        for kwargs in ({}, {"tools": tools}, {"mood": "!", "add_generation_prompt": False}):
            options = {"add_generation_prompt": True, **kwargs}
            want = theirs.apply_chat_template(messages, tokenize=False, **options)
            assert ours.render_chat(messages, **kwargs) == want, template


def test_weights_that_are_not_those_of_the_configuration_are_not_read(folder):
    path = folder / "config.json"
    whole = path.read_text()
    for values in (
        {"num_hidden_layers": 10**6},
        {"vocab_size": 10**9},
        {"intermediate_size": 77},
        {"hidden_size": 4 * 10**8, "head_dim": 10},
    ):
        path.write_text(whole)
        change(path, **values)
        with case(values):
            message = refusal(folder)
            assert "config.json asks for" in message
            assert "the weights hold" in message
    for values in ({"num_attention_heads": 0}, {"rope_parameters": "x"}):  # no fault of the tokenizer
        path.write_text(whole)
        change(path, **values)
        with case(values):
            message = refusal(folder)
            assert "config.json" in message
            assert "okenizer" not in message


def test_the_next_template_is_rendered_after_one_that_had_to_be_ended(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer_module, "SECONDS", 0.5)
        (folder / "chat_template.jinja").write_text(ENDLESS)
        with pytest.raises(ModelError, match="did not end within"):
            HFTokenizer.load(folder).render_chat(TURN)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert HFTokenizer.load(folder).render_chat(TURN) == "hi"


def test_a_tokenizer_that_panics_is_the_fault_of_the_model(folder):
    found = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    found["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, found["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(found))
    tokenizer = HFTokenizer.load(folder)
    assert tokenizer.encode("ab")
    with pytest.raises(ModelError, match="The tokenizer of .* failed on a text"):
        tokenizer.encode("a" * 28 + "b")
