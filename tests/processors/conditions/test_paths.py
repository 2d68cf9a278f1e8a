"""The scanner knows at each byte of a JSON text which value the next byte belongs to."""

import json
import random

from processors.request_values import JsonPaths

PATHS = ("", "/a", "/a/*", "/*/b", "/a/0/b", "/*", "/é~1~0/a", "/a/*/*/b")
KEYS = ("a", "b", "é/~", '"\\\n', "a" * 40)


def written(rng, path=(), depth=0):
    """Bytes of a random value, each with the path of the value that it belongs to."""
    kind = rng.choice("sn{[" if depth < 4 else "sn")
    if kind == "s":
        text = json.dumps(rng.choice(("", "x", '{"a":[', "\\", "é\n")), ensure_ascii=rng.random() < 0.5)
        return [(byte, path) for byte in text.encode()]
    if kind == "n":
        return [(byte, path) for byte in rng.choice((b"12", b"-1.5e3", b"true", b"null"))]
    found = [(ord(kind), path)]
    for index in range(rng.randint(0, 3)):
        if index:
            found += [(ord(","), of_delimiter(found, path))]
        key = rng.choice(KEYS)
        if kind == "{":
            head = blank(rng) + json.dumps(key, ensure_ascii=rng.random() < 0.5).encode() + blank(rng) + b":"
            found += [(byte, path) for byte in head]
        below = (*path, key if kind == "{" else str(index))
        found += [(byte, below) for byte in blank(rng)] + written(rng, below, depth + 1)
    if kind == "[" and len(found) == 1:
        return [*found, (ord("]"), (*path, "0"))]  # the state before it is that of a first item
    return [*found, (ord("}" if kind == "{" else "]"), of_delimiter(found, path))]


def blank(rng):
    return rng.choice((b"", b"", b" ", b"\n\t"))


def of_delimiter(found, path):
    """A number goes on until something else comes: that belongs to the state before it."""
    byte, below = found[-1]
    is_open = len(below) == len(path) + 1 and bytes((byte,)).isalnum()
    return below if is_open else path


def is_under(path, pattern):
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pattern.split("/")[1:]]
    return len(path) >= len(keys) and all(key in ("*", at) for key, at in zip(keys, path, strict=False))


def test_each_byte_belongs_to_the_value_that_the_writer_meant():
    for seed in range(60):
        rng = random.Random(seed)
        text = written(rng)
        data = bytes(byte for byte, _ in text)
        json.loads(data)
        paths = JsonPaths(PATHS)
        state = paths.first()
        for byte, path in text:
            assert [paths.holds(state, i) for i in range(len(PATHS))] == [
                is_under(path, one) for one in PATHS
            ], seed
            state = paths.next(state, bytes((byte,)))
        whole = paths.first()
        while data:
            size = rng.randint(1, 9)
            whole, data = paths.next(whole, data[:size]), data[size:]
        assert whole == state, seed


def test_what_is_no_json_ends_it():
    for text in [b"{]", b'{"a":}', b'{"a" 1}', b"[1,]", b"}", b"{,", b'"a" x', b"\xff", b"{1"]:
        paths = JsonPaths(("", "/a"))
        state = paths.next(paths.first(), text)
        assert not any(paths.holds(state, path) for path in (0, 1)), text
        assert paths.next(state, b'{"a":') == state, text


def test_a_long_key_and_a_long_string_take_no_memory():
    paths = JsonPaths(("/ab",))
    state = paths.next(paths.first(), b'{"' + b"\\u0061" * 10_000)
    assert len(state.key) <= 13
    state = paths.next(state, b'": "' + b"x" * 10_000)
    assert (state.mode, state.key) == ("string", b"")
