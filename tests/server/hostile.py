"""Hostile requests by kind: each has to be refused with a reason, without harm to anybody else.

A kind makes as many different requests as are asked for. The few that are odd but harmless may be answered.
"""

import json
from itertools import cycle, islice
from random import Random

from processors.testing.examples import HOSTILE
from tests.server.hostile_http import (
    CHAT,
    TEXT,
    bodies,
    chunked,
    content_types,
    encodings,
    headers,
    hosts,
    keys,
    routes,
    smuggled,
)  # fmt: skip
from tests.server.raw import Shot, post

RESPONSES = "/v1/responses"
_USER = [{"role": "user", "content": "a"}]
_SMALL = {"prompt": "a", "max_tokens": 4, "seed": 1}
_LARGE = 200_000  # bytes of a grammar: larger ones are refused by their size alone
_SECRET = "/etc/passwd"


def _text(**fields):
    return post({**_SMALL, **fields})


def _chat(**fields):
    return post({"messages": _USER, "max_tokens": 4, "seed": 1, **fields}, CHAT)


def _both(**fields):
    return (_text(**fields), _chat(**fields))


def _raw(text, path=TEXT):
    return post(text if isinstance(text, bytes) else text.encode(), path)


def _malformed():
    texts = ("", "{", '{"prompt": "a",}', "{'prompt': 'a'}", '{"prompt": "a"} x', '"a"', "null", "[]", "1",
             '{"prompt": "a", "prompt": "b"}', '{"prompt": "a" /* x */}', "\ufeff{}", '{"prompt": tru}',
             '{"prompt": "a\n"}', '{"prompt": "\\x41"}', "{" * 63, "prompt=a", "<a/>")  # fmt: skip
    return [*map(_raw, texts), _raw(b'{"prompt": "\xff\xfe"}'), _raw(b'{"prompt": "\xed\xa0\x80"}')]


def _deep():
    for depth in (65, 1000, 100_000, 1_000_000):
        yield _raw('{"prompt": ' + "[" * depth + "]" * depth + "}")
        yield _raw('{"prompt": "a", "x": ' + '{"a": ' * depth + "1" + "}" * depth + "}")
        yield _raw("[" * depth)


_NUMBERS = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "n", "max_tokens", "seed",
            "max_time",
            "repetition_penalty", "logprobs", "best_of", "min_tokens", "guidance", "trace")  # fmt: skip


def _not_a_number():
    for name in _NUMBERS:
        for value in ("NaN", "Infinity", "-Infinity", "1e999", "1e400"):
            yield _raw(f'{{"prompt": "a", "{name}": {value}}}')


def _huge_numbers():
    for name in _NUMBERS:
        for value in ("9" * 5000, "-1" + "0" * 200, "1" + "0" * 1_000_000, "1e9999999999"):
            yield _raw(f'{{"prompt": "a", "{name}": {value}}}')


_FIELDS = (*_NUMBERS, "stop", "stop_regex", "stop_id", "logit_bias", "stream", "stream_options", "preset",
           "session",
           "model", "response_format", "regex", "grammar", "json_schema", "choice", "chain", "stages",
           "draft",
           "negative", "ban", "allow_ids", "tools", "tool_choice", "structured_outputs", "return_token_ids",
           "ignore_eos", "retries", "beams", "json")  # fmt: skip


def _wrong_types():
    for name in _FIELDS:
        for value in ({"a": {"b": 1}}, [[["a"]]], 1.5e300, [1, "a", None, {}]):
            if (name, value) not in ((name, {"a": {"b": 1}}) for name in ("json_schema",)):
                yield from _both(**{name: value})


def _negative():
    for name in ("n", "max_tokens", "top_p", "top_k", "min_p", "temperature", "best_of", "beams", "max_time",
                 "repetition_penalty", "min_tokens", "guidance", "retries", "seed", "trace"):  # fmt: skip
        yield from _both(**{name: -7})


def _many_texts():
    for name in ("n", "best_of", "beams", "contrastive_k"):
        yield from (request for value in (129, 10**6, 10**30) for request in _both(**{name: value}))
    yield _text(prompt=["a"] * 256, n=128)
    yield _text(prompt=["a"] * 200, best_of=100)


def _stops():
    yield from _both(stop=["a"] * 1_000_000)
    yield from _both(stop=["a" * 2000])
    yield from _both(stop="b" * 1_000_000)
    yield from _both(stop=[""])
    yield from _both(stop=[*map(str, range(65))])
    yield from _both(stop_id=[10**12])
    yield from _both(stop_id=[-1])


def _stop_patterns():
    for pattern in ("(", "a**", "(?<a", "[z-a]", "", "a*", "(a" * 400, r"\p{Nope}", "(?R)", "a{99999999}",
                    "((a{0,100}){0,100}){0,100}", r"(a", "a" * 2000):  # fmt: skip
        yield from _both(stop_regex=pattern)


def _bias():
    for value in ({"-1": 1}, {"999999999": 5}, {"1": "x"}, {"1": None}, [["", 1]], [[1]], [[True, 1]], [[1,
                                                  2, 3]],
                  {"1": 1e300}, {str(n): 1 for n in range(100_000)}, {"9" * 90: 1}, 5, "1"):  # fmt: skip
        yield from _both(logit_bias=value)


def _surrogates():
    for half in ("\\ud800", "\\udfff", "\\udc00\\ud800", "a\\ud83d"):
        for field in ("prompt", "stop", "session", "model", "regex", "negative", half):
            yield _raw(f'{{"x": 1, "{field}": "{half}"}}')
        yield _raw(f'{{"messages": [{{"role": "user", "content": "{half}"}}]}}', CHAT)


def _hostile_texts(kind):
    texts = (make() for (each, _), make in HOSTILE.items() if each == kind)
    return [text for text in texts if len(text) < _LARGE]


def _regexes():
    return (request for text in _hostile_texts("regex") for request in _both(regex=text, max_tokens=2))


def _grammars():
    for text in _hostile_texts("ebnf"):
        yield from _both(grammar=text, max_tokens=2)
    for text in _hostile_texts("lark"):
        yield _text(lark=text, max_tokens=2)


def _schemas():
    for text in _hostile_texts("json_schema"):
        try:
            schema = json.loads(text)
        except (RecursionError, ValueError):
            yield _raw(f'{{"prompt": "a", "json_schema": {text}}}')
            continue
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        yield _chat(response_format=form, max_tokens=2)


def _references():
    for ref in ("http://169.254.169.254/latest", "https://example.com/a.json", "file:///etc/passwd",
                "//x/y", "a.json",
                "#/$defs/none", "#/" + "a/" * 1000, "ftp://a", "\x00", "#/%zz", "../../a.json"):  # fmt: skip
        yield _text(json_schema={"$ref": ref})
        yield _chat(
            tools=[_tool({"type": "object", "properties": {"a": {"$ref": ref}}})], tool_choice="required"
        )


def _tool(parameters, name="f"):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _tools():
    for tools in ([], {}, "x", [1], [{}], [{"type": "function"}], [_tool(1)], [_tool({"type": "nope"})],
                  [_tool({}, "")], [_tool({}, 5)], [_tool({}, "a"), _tool({}, "a")],
                  [{"type": "code_interpreter"}],
                  [_tool({"type": "object", "properties": 3})], [_tool({"type": ["object", "nope"]})],
                  [_tool({"pattern": "("})]):  # fmt: skip
        yield _chat(tools=tools, tool_choice="required")
    yield _chat(tools=[_tool({})], tool_choice="g")
    yield _chat(tools=[_tool({})], tool_choice={"type": "function", "function": {"name": "g"}})


def _templates():
    attack = "{{ cycler.__init__.__globals__.os.popen('id').read() }}"
    yield _chat(chat_template=attack)
    for name in ("chat_template", "messages", "tools", "tokenize", "conversation"):
        yield _chat(chat_template_kwargs={name: attack})
    yield _chat(chat_template_kwargs=attack)
    yield _chat(chat_template_kwargs=[attack])
    yield _chat(template=attack)
    yield _text(template="/etc/passwd")


def _escapes():
    for name in ("\x1b[2J", "\x00", "\x9b31m", "\u202e", "\r\nSet-Cookie: a=b", "a\x07"):
        yield from _both(**{name: 1})
        yield _text(preset=name)
        yield _text(chain=name)
        yield _text(response_format={"type": name})


def _paths():
    for name in (
        "../../etc/passwd",
        _SECRET,
        "~/.ssh/id_rsa",
        "creative/../x",
        "..",
        "C:\\x",
        "a\x00b",
        "a" * 5000,
    ):
        yield _text(preset=name)
        yield _text(preset=[name])
        yield _text(draft=name)
        yield _text(contrast=name)
        yield _text(session=name * 600)
    for path in ("/v1/models/../../etc/passwd", "/v1/models/%2e%2e%2fetc%2fpasswd", "/v1/models/%00",
                 "/%2e%2e/%2e%2e",
                 "/v1/models/" + "a" * 9000, "/static/../../x", "//etc/passwd",
                 "/v1/models/%ff%fe"):  # fmt: skip
        yield post(b"", path, method="GET")


def _files():
    for key in ("grammar", "lark", "json_schema", "structural_tag", "tools"):
        for name in ("/etc/a.json", "schema.json", "../a.yaml", "~/b.yml"):
            yield _chat(**{key: name})
    for key in ("grammar", "lark", "structural_tag", "tools"):
        for name in (_SECRET, "@/etc/passwd", "/dev/zero", "/proc/self/environ", "LICENSE"):
            yield _chat(**{key: name})


def _messages():
    for message in ({"role": "root", "content": "a"}, {"role": "user"}, {"content": "a"},
                    {"role": ["user"]}, 5, None,
                    {"role": "user", "content": 5}, {"role": "user", "content": {"a": 1}}, {"role": None},
                    {"role": "user", "content": [1]}, {"role": "user", "content": "a", "x": 1}, {"role": {}},
                    {"role": "assistant", "tool_calls": 5}, {"role": "assistant", "tool_calls": [{}]},
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f",
                                                  "arguments": "{"}}]}):  # fmt: skip
        yield post({"messages": [message]}, CHAT)
    yield post({"messages": _USER * 5000}, CHAT)
    yield post({"messages": {}}, CHAT)


def _images():
    for part in ({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}, {"type": "video"},
                 {"type": "image_url", "image_url": "file:///etc/passwd"}, {"type": "input_audio",
                                                  "input_audio": {}},
                 {"type": "file", "file": {"file_id": "x"}}, {"type": "input_image",
                                                  "image_url": "data:a"}):  # fmt: skip
        yield post({"messages": [{"role": "user", "content": [part]}]}, CHAT)
        yield post({"input": [{"type": "message", "role": "user", "content": [part]}]}, RESPONSES)


def _ids():
    for prompt in (
        [10**18],
        [-1],
        [1.5],
        [True],
        [[1], [10**9]],
        [[]],
        [],
        [None],
        {},
        [1] * 1_000_000,
        [[1, "a"]],
    ):
        yield _text(prompt=prompt)
    for tokens in ([10**18], [-1], "a", [1.5], {}, None, [True]):
        yield post({"tokens": tokens}, "/detokenize")


def _unknown():
    for name in ("__class__", "__proto__", "constructor", "temperatur", "a" * 100_000, "", "top k", "\u202e"):
        yield from _both(**{name: 1})
    yield _text(**{f"field{number}": 1 for number in range(100_000)})


def _long_prompts():
    yield _text(prompt="word " * 100_000)
    yield _text(prompt=" " * 4_000_000)
    yield _text(prompt="a" * 8_000_000)
    yield _text(prompt="\u4e2d" * 1_000_000)
    yield _text(prompt=["word " * 4000] * 200)
    yield _text(prompt=["a"] * 100_000)
    yield post({"messages": [{"role": "user", "content": "a " * 1_000_000}]}, CHAT)
    yield post({"prompt": "a " * 3_000_000}, "/tokenize")


def _chains():
    for chain in ("nope", "top_k=", "a|" * 50_000, "top_k=5 | top_k=6" * 100, ["nope"], [{"nope": 1}],
                  "top_k:" * 999,
                  "temperature=x"):  # fmt: skip
        yield _text(chain=chain)
    for stages in ({"nope": {}}, {"top_k": {"nope": 1}}, {"top_k": "x"},
                   {"temperature": {"temperature": []}}, [1],
                   {f"s{number}": {} for number in range(50_000)}):  # fmt: skip
        yield _text(stages=stages)


def _logprobs():
    yield from (_text(logprobs=value) for value in (21, -1, True, "5", 10**9))
    yield from (_chat(logprobs=True, top_logprobs=value) for value in (21, -1, "5", 10**9))
    yield _chat(top_logprobs=5)
    yield from _both(stream_options={"include_usage": True})
    yield _text(stream=True, stream_options={"nope": 1})


def _responses():
    for body in ({"input": []}, {"input": 5}, {"input": "a", "previous_response_id": "x"}, {},
                 {"input": [{"type": "x"}]},
                 {"input": [{"type": "function_call"}]}, {"input": "a", "text": {"format": {"type": "x"}}},
                 {"input": "a", "tools": [{"type": "web_search"}]}, {"input": "a", "conversation": "x"},
                 {"input": "a", "max_output_tokens": -2}, {"input": "a", "background": True}):  # fmt: skip
        yield post(body, RESPONSES)


def _wide():
    yield _raw('{"prompt": [' + "[]," * 2_700_000 + "[]]}")
    yield _raw('{"prompt": [' + '{"a":1},' * 1_000_000 + "{}]}")
    yield _raw('{"prompt": [' + "1," * 4_000_000 + "1]}")
    yield _raw('{"prompt": [' + '"a",' * 2_000_000 + '"a"]}')
    yield _raw('{"prompt": [' + "1.5," * 2_000_000 + "1]}")


def _combined():
    for fields in ({"regex": "a", "grammar": 'root ::= "a"'}, {"json": True, "regex": "a"}, {"beams": 2,
                                                  "n": 3},
                   {"draft": "nope"}, {"guidance": 2, "negative": 5}, {"choice": []}, {"choice": [""]},
                   {"structured_outputs": {"regex": "a", "json": {}}}, {"constrain_after": "x"},
                   {"max_tokens": 1, "max_completion_tokens": 2}, {"grammar_timeout": 10**6},
                   {"suffix": "x"}, {"verify": "x"}, {"beams": 3, "temperature": 1,
                                                  "stream": 5}):  # fmt: skip
        yield from _both(**fields)


def _token_routes():
    for path in ("/tokenize", "/v1/tokenize"):
        for body in ({}, {"prompt": 5}, {"prompt": "a", "content": "b"}, {"messages": []}, {"prompt": "a",
                                                  "x": 1}, 5,
                     {"messages": _USER, "chat_template": "x"}, {"prompt": ["a"]}):  # fmt: skip
            yield post(body, path)
    for body in ({"chain": 5}, {"stages": [5]}, {"preset": "/x"}, [], {"top_kk": 1}):
        yield post(body, "/v1/chain")


_REFUSED = {
    "malformed JSON": _malformed, "deep": _deep, "not a number": _not_a_number, "huge numbers": _huge_numbers,
    "wrong types": _wrong_types, "negative": _negative, "many texts": _many_texts, "stops": _stops,
    "stop patterns": _stop_patterns, "bias": _bias, "surrogates": _surrogates, "references": _references,
    "tools": _tools, "templates": _templates, "escapes": _escapes, "paths": _paths, "files": _files,
    "content types": content_types, "encodings": encodings, "chunked": chunked, "headers": headers,
    "hosts": hosts, "keys": keys, "smuggled": smuggled, "messages": _messages, "images": _images, "ids": _ids,
    "routes": routes, "unknown fields": _unknown, "long prompts": _long_prompts, "chains": _chains,
    "log-probabilities": _logprobs, "responses": _responses, "wide": _wide, "combined": _combined,
    "bodies": bodies, "routes of tokens": _token_routes,
}  # fmt: skip
_HARMFUL = {"regexes": _regexes, "grammars": _grammars, "schemas": _schemas}  # some compile, and are harmless
KINDS = (*_REFUSED, *_HARMFUL)


def shots(kind, count=None):
    """Return `count` shots of a kind at random, in turns if it has fewer; all of them without a count."""
    made = [*(_REFUSED | _HARMFUL)[kind]()]
    if count is not None:
        Random(0).shuffle(made)
        made = [*islice(cycle(made), count)]
    parts = (one if isinstance(one, tuple) else (one,) for one in made)
    return [Shot(each, "4" if kind in _REFUSED else "24") for each in parts]
