"""Structures, free text, drafts, guidance, beams, samplers and watermarks on a real model, by numbers."""

import json
import math
import re
from collections import Counter

import pytest

from gencli import LLM
from gencli.cli.app import main
from tests.real.models import SMOL, folder

NAME = {"type": "string", "maxLength": 30}
NUMBER = {"type": "number", "minimum": 0, "maximum": 999}


def record(**properties):
    return {"type": "object", "properties": properties, "required": [*properties]}


SCHEMAS = [
    record(city=NAME, country=NAME),
    record(age={"type": "integer", "minimum": 0, "maximum": 120}),
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 4},
    record(ok={"type": "boolean"}, why=NAME),
    {"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"},
    record(date={"type": "string", "format": "date"}),
    {
        "type": "object",
        "propertyNames": {"enum": ["p", "q"]},
        "additionalProperties": NUMBER,
        "minProperties": 1,
    },
    {"anyOf": [{"type": "null"}, record(n=NUMBER)]},
    record(items={"type": "array", "items": record(name=NAME, price=NUMBER), "minItems": 1, "maxItems": 2}),
    record(mail={"type": "string", "format": "email", "maxLength": 40}),
    {"oneOf": [{"const": "yes"}, {"const": "no"}]},
    {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 100},
    {**record(a={"$ref": "#/$defs/t"}, b={"$ref": "#/$defs/t"}), "$defs": {"t": NAME}},
    {"type": "array", "prefixItems": [NAME, {"type": "integer"}], "items": False, "minItems": 2},
    record(id={"type": "string", "pattern": "^(?!x-)[a-z-]{1,12}$"}),
]
ASK = "Answer with JSON only. Tell me about Paris, the capital of France."
TOOLS = json.dumps(
    [{"type": "function", "function": {"name": "get_weather", "parameters": record(city=NAME)}}]
)


@pytest.fixture(scope="module")
def llm():
    return LLM(model=str(folder(SMOL)), dtype="float32", max_batch=8)


def chat(llm, text, **options):
    (out,) = llm.chat([[{"role": "user", "content": text}]], **options)
    return out.samples[0]


def test_documents_are_valid_and_near_what_the_model_wants(llm):
    ranks = []
    for number, schema in enumerate(SCHEMAS):
        sample = chat(llm, ASK, json_schema=json.dumps(schema), temperature=0, max_tokens=160, logprobs=0)
        assert sample.error is None, (number, sample)
        outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', sample.text)
        assert not re.search(r"\s[,:]", outside), (number, sample.text)
        ranks += [entry.rank for entry in sample.logprobs]
    ranks.sort()
    assert ranks[len(ranks) // 2] == 1
    assert sum(rank > 20 for rank in ranks) / len(ranks) < 0.25, Counter(rank > 20 for rank in ranks)


def test_keys_are_likely_if_the_prompt_shows_the_schema(llm):
    text = "Extract the data from this text: Nora Lindqvist is a 41 year old pilot from Quito."
    schema = json.dumps(record(full_name=NAME, age={"type": "integer"}, occupation=NAME, home_city=NAME))
    unlikely = {}
    for shown in ("off", "on"):
        options = {"json_schema": schema, "schema_in_prompt": shown, "temperature": 0, "max_tokens": 160}
        sample = chat(llm, text, logprobs=0, **options)
        assert sample.error is None, sample
        unlikely[shown] = sum(entry.rank > 20 for entry in sample.logprobs)
    assert unlikely["on"] <= 1 < unlikely["off"]


def test_tools_are_told_where_the_template_has_no_place_for_them(llm):
    weather = "What is the weather in Paris?"
    counts = [
        chat(llm, weather, tools=TOOLS, schema_in_prompt=shown, max_tokens=1).prompt_tokens
        for shown in ("off", "auto")
    ]
    assert counts[0] + 50 < counts[1]


def test_text_before_a_call_is_the_text_without_tools(llm):
    for length in (1, 2, 3, 4, 6, 10, 20, 40):
        for draw in ({"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": length}):
            plain = chat(llm, "Tell me about Paris.", max_tokens=length, **draw)
            # The template has no place for tools, and the text that would show them is another prompt.
            untold = {"tools": TOOLS, "schema_in_prompt": "off"}
            free = chat(llm, "Tell me about Paris.", max_tokens=length, **untold, **draw)
            assert free.text == plain.text, (length, draw)


def test_drafts_change_no_text(llm):
    count = "Count from one to twenty in words."
    plain = chat(llm, count, temperature=0, max_tokens=60, draft="none")
    assert chat(llm, count, temperature=0, max_tokens=60, draft="ngram").text == plain.text


def mean_logprob(llm, text, answer):
    (scored,) = llm.generate([f"{text}{answer}"], max_tokens=1, prompt_logprobs=0)
    entries = [entry for entry in scored.prompt_logprobs if entry is not None]
    return sum(entry.chosen.logprob for entry in entries) / len(entries)


def test_beams_find_likelier_texts_than_greed(llm):
    prompt = "The capital of France is"
    (greedy,) = llm.generate([prompt], temperature=0, max_tokens=16)
    (beams,) = llm.generate([prompt], beams=4, max_tokens=16)
    assert mean_logprob(llm, prompt, beams.text) >= mean_logprob(llm, prompt, greedy.text) - 1e-3


def test_samplers_keep_a_hot_draw_readable(llm):
    def odd(**options):
        """The share of drawn tokens that the model finds unlikely."""
        sample = chat(
            llm,
            "Tell me a story about a dog.",
            temperature=1.5,
            seed=5,
            max_tokens=120,
            logprobs=0,
            **options,
        )
        return sum(entry.chosen.logprob < math.log(0.01) for entry in sample.logprobs) / len(sample.logprobs)

    hot = odd()
    assert hot > 0.2
    assert odd(min_p=0.1) < hot / 2
    assert odd(top_k=5) < hot / 2


def test_dry_ends_a_loop(llm):
    def loops(**options):
        (out,) = llm.generate(["a b c d a b c d a b c d a"], temperature=0, max_tokens=60, **options)
        words = out.text.split()
        runs = [tuple(words[place : place + 4]) for place in range(len(words) - 3)]
        return len(runs) - len(set(runs))

    assert loops() > 20
    assert loops(dry_multiplier=0.8) < 5


def test_guidance_follows_the_prompt_more(llm):
    def share(**options):
        text = llm.generate(["Recipe: apple pie with apples."], temperature=0, max_tokens=60, **options)[
            0
        ].text
        return text.lower().count("apple")

    assert share(guidance=2.0) >= share()


def test_a_watermark_is_found_in_a_real_text(tmp_path, capfd):
    key, text = tmp_path / "mark.key", tmp_path / "text.txt"
    key.write_text("123456789")
    mark = ("--watermark", "gumbel", "--watermark-key", str(key), "--model", str(folder(SMOL)))
    start = ("run", *mark, "--dtype", "float32", "--raw", "--ignore-eos", "--max-tokens", "150", "--quiet")
    assert main([*start, "The history of the city began"]) == 0
    text.write_text(capfd.readouterr().out)
    assert main(["detect", *mark, str(text), "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["p_value"] < 1e-6
