"""Hostile requests that are wrong as HTTP: headers, hosts, keys, encodings, bodies, routes."""

import gzip

from tests.server.raw import post

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
_SMALL = {"prompt": "a", "max_tokens": 4, "seed": 1}


def content_types():
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "",
                 "x" * 5000,
                 "application/jsonx", "text/json", None, "application/xml", "*/*"):  # fmt: skip
        for path in (TEXT, CHAT, "/tokenize"):
            yield post(_SMALL, path, Content_Type=kind)


def encodings():
    bomb = gzip.compress(b'{"prompt": "' + b"a" * 20_000_000 + b'"}')
    for kind in ("gzip", "deflate", "br", "gzip, gzip", "zstd"):
        yield post(bomb, Content_Encoding=kind)
        yield post(_SMALL, Content_Encoding=kind)


def chunked():
    head = {"Content_Length": None, "Transfer_Encoding": "chunked"}
    for size in ("zz", "-1", "0x10", "ffffffffffffffffffff", " 5", "5;" + "a" * 20_000):
        yield post(f"{size}\r\n".encode() + b"a" * 50, **head)
    block = f"{1 << 20:x}\r\n".encode() + b" " * (1 << 20) + b"\r\n"
    yield (post(b"", **head), *[block] * 10)


def headers():
    for name, values in (("Authorization", ("Bearer k", "Bearer x")), ("Content-Type", ("application/json",
                                                  "text/a")),
                         ("Host", ("localhost", "evil.example")), ("Content-Length", ("5",
                                                  "6"))):  # fmt: skip
        yield post(_SMALL, **{name.replace("-", "_"): f"{values[0]}\r\n{name}: {values[1]}"})
    yield post(_SMALL, **{f"X-{number}": "a" for number in range(10_000)})
    yield post(_SMALL, X_Long="a" * 100_000)
    yield post(_SMALL, X_Null="a\x00b")
    yield post(_SMALL, **{"X Y": "a"})


def hosts():
    for host in ("evil.example", "localhost.evil.example", "", "localhost@evil", "127.0.0.1.evil.example",
                 "a" * 5000,
                 "[::1", "2130706433", "0x7f000001", "localhost\\evil", "%6c", "evil:80"):  # fmt: skip
        yield post(_SMALL, Host=host)
        yield post(b"", "/health", method="GET", Host=host)


def keys():
    for key in ("", "K", "kk", "k" * 5000, "null", "k k", "\xe9", "' or 1=1"):
        yield post(_SMALL, key=key)
        yield post(b"", "/metrics", method="GET", key=key)
        yield post(_SMALL, Authorization=f"Basic {key}")
        yield post(_SMALL, Authorization=None, X_Api_Key=key)


def smuggled():
    inner = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield post(inner, Transfer_Encoding="chunked")
    for kind in (
        "xchunked",
        "chunked, identity",
        "identity",
        "\x0bchunked",
        "chunked\r\nTransfer-Encoding: x",
    ):
        yield post(inner, Transfer_Encoding=kind)
    yield post(b"{}", Content_Length="+2")
    yield post(b"{}", Content_Length="2, 3")
    yield post(b"{}", Content_Length="-1")
    yield post(b"{}", Content_Length="0x2")
    yield post(b"{}", Content_Length="9" * 30)
    yield b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n"
    yield b"GET /health HTTP/9.9\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    yield b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    yield b"GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\nHost: localhost\r\nConnection: close\r\n\r\nSM\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9  # the beginning of TLS


def routes():
    for method in ("PUT", "DELETE", "TRACE", "PATCH", "CONNECT", "FOO", "GET", "OPTIONS"):
        yield post(b"", TEXT, method=method)
    for path in (
        "/v1/embeddings",
        "/admin",
        "/v1",
        "/v1/chat/completions/",
        "/docs",
        "/v1//completions",
        "*",
    ):
        yield post(_SMALL, path)


def bodies():
    for size in (8 << 20, 20 << 20):
        yield post(b" " * size + b"{}")
        yield post(b" " * size, "/tokenize")
    for said in ("99999999999", "8388609", "100000000"):
        yield post(b"{}", Content_Length=said)
        yield post(b"{}", CHAT, Content_Length=said)
