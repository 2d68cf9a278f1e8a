"""What the server lets in: Host header, API key, other origins; the size and time of bodies; limits of
sizes chosen by clients, checked before anything is built from a request. Pure ASGI, so that disconnects
pass through.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gencli.errors import GencliError
from gencli.json_text import JsonLimits, parse_json
from gencli.server.wire_calls import Call
from gencli.server.wire_fields import ApiError, bad_field
from processors.params import whole

if TYPE_CHECKING:
    from gencli.server.engine_thread import EngineOrder


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Paths without a key: the page is the same file on every server and contains no data of this one. Its
# requests need the key.
_WITHOUT_KEY = ("/health", "/")
_MAX_HEADERS, _MAX_HEADER_BYTES = 100, 1 << 15
_DRAIN_SECONDS = 2.0  # seconds in which the rest of a rejected body is read
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type, x-api-key"),
    (b"access-control-max-age", b"600"),
]
_AT_MOST_ONCE = (
    b"host", b"content-type", b"content-length", b"content-encoding", b"transfer-encoding", b"authorization",
    b"x-api-key", b"origin",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AccessRules:
    """`key`: "" requires none. `hosts`: names besides localhost and addresses. `origins`: of other pages."""

    key: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def knows_host(self, host: str) -> bool:
        """Whether the Host header is an address of this machine, localhost, or one of `hosts`.

        This rejects a page of another site whose own domain name resolves to this machine (DNS rebinding).
        """
        name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        if name.casefold() in ("localhost", *map(str.casefold, self.hosts)) or "*" in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def takes_key(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a header has the key, in time that does not depend on the key."""
        scheme, _, token = header(headers, "authorization").partition(" ")
        token = token if scheme.casefold() == "bearer" else header(headers, "x-api-key")
        digests = (hashlib.sha256(text.strip().encode()).digest() for text in (token, self.key))
        return not self.key or hmac.compare_digest(*digests)


def header(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """Return the value of a header; "" without it."""
    return next((value.decode("latin-1") for key, value in headers if key == name.encode()), "")


class Guard:
    """Checks each request before the app sees it; adds its id, and the headers for other origins."""

    def __init__(
        self, app: App, rules: AccessRules, on_status: Callable[[int], None] = lambda status: None
    ) -> None:
        self._app, self._rules, self._on_status = app, rules, on_status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply to a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["request_id"] = secrets.token_hex(12)
        origin = header(scope["headers"], "origin")
        allowed = origin if origin and ({origin, "*"} & {*self._rules.origins}) else ""

        body = _BodyRest(scope, receive)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= 400 and message["status"] != 408:
                    await body.drop()
                self._on_status(message["status"])
                headers = [(b"x-request-id", scope["request_id"].encode())]
                headers += [(b"x-content-type-options", b"nosniff")]
                if allowed:
                    origin_header = (b"access-control-allow-origin", allowed.encode("latin-1"))
                    headers += [origin_header, (b"vary", b"origin")]
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        if allowed and scope["method"] == "OPTIONS":
            await answer({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
            await answer({"type": "http.response.body", "body": b""})
            return
        try:
            _check_http(scope)
            if not self._rules.knows_host(header(scope["headers"], "host")):
                hint = "Use localhost or an address, or start the server with `allow_host`."
                fault = "The host name of the request is not allowed."
                raise ApiError(403, fault, code="host_not_allowed", hint=hint)
            if scope["path"] not in _WITHOUT_KEY and not self._rules.takes_key(scope["headers"]):
                raise ApiError(401, "The API key is missing or wrong.", code="invalid_api_key")
        except ApiError as error:
            await send_error(answer, error)
            return
        await self._app(scope, body.receive, answer)


class _BodyRest:
    """Reads the rest of a body that an app has left, for a limited time, before an error is sent.

    Otherwise a client that is still sending would get a connection reset instead of the reply.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        headers = scope["headers"]
        has_body = header(headers, "content-length") not in ("", "0") or header(headers, "transfer-encoding")
        self._is_over = not has_body or bool(header(headers, "expect"))  # with `expect` the client waits

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_over |= not message.get("more_body")
        return message

    async def drop(self) -> None:
        """Read the rest, for at most two seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._is_over:
                    await self.receive()


def _check_http(scope: Scope) -> None:
    # A proxy, cache or log may parse such a request differently.
    names = [name for name, _ in scope["headers"]]
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if len(names) > _MAX_HEADERS or size > _MAX_HEADER_BYTES:
        raise ApiError(431, "The request has too many or too long headers.", code="headers_too_large")
    twice = next((name.decode() for name in _AT_MOST_ONCE if names.count(name) > 1), None)
    if twice is not None:
        raise ApiError(400, f"The request has the header {twice} more than once.", code="invalid_http")
    if b"transfer-encoding" in names and b"content-length" in names:
        raise ApiError(400, "The request has both Content-Length and Transfer-Encoding.", code="invalid_http")
    if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
        raise ApiError(400, "The server speaks HTTP/1.1.", code="invalid_http")


async def send_error(send: Send, error: ApiError) -> None:
    """Send an error as a whole reply."""
    body = json.dumps(error.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_BODY_SECONDS, _BODY_RATE = 30.0, 1 << 18  # a body has 30 s, and one more second for each 256 KiB received
_MAX_VALUES = 1 << 19  # values, by the commas of a body; small lists take 20 times the memory of their text
_UNCOUNTED = 1 << 16  # bytes of each body that do not count towards the memory of all
_CLOSE = {"connection": "close"}
_JSON = JsonLimits(max_depth=64, max_digits=100, has_decimals=False)


class Disconnected(Exception):
    """The client has disconnected."""


class Bodies:
    """Limits the memory of the bodies of all unanswered calls: `max_held` bytes beyond 64 KiB of each.

    Otherwise many clients that never finish a large body would fill the memory.
    """

    def __init__(self, max_held: int = 256 << 20) -> None:
        self.max_held, self.held = max_held, 0

    @contextmanager
    def room(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts the bytes of one body until its call ends, or raises ApiError 429."""
        counted = 0

        def hold(size: int) -> None:
            nonlocal counted
            more = max(0, size - _UNCOUNTED) - counted
            if self.held + more > self.max_held:
                raise ApiError(429, "The server has too many large bodies.", code="bodies_full")
            self.held, counted = self.held + more, counted + more

        try:
            yield hold
        finally:
            self.held -= counted


async def read_body(scope: Scope, receive: Receive, max_size: int, hold: Callable[[int], None]) -> bytes:
    """Return the body; `hold` is called with its size while it grows.

    Raises ApiError: 415 for another type, 413 for a body that is too large or has no declared length, 408 for
    one that is too slow.
    """
    headers = scope["headers"]
    kind = header(headers, "content-type").partition(";")[0].strip().casefold()
    if kind != "application/json":
        raise ApiError(415, "The Content-Type has to be application/json.", code="unsupported_media_type")
    if header(headers, "content-encoding").strip().casefold() not in ("", "identity"):
        raise ApiError(415, "The body must not have a Content-Encoding.", code="unsupported_media_type")
    too_large = ApiError(
        413, f"The body is larger than {max_size} bytes.", code="body_too_large", headers=_CLOSE
    )
    length = header(headers, "content-length")
    if length.isdecimal() and int(length[:18]) > max_size:
        raise too_large
    parts, size, begin = [], 0, asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(_BODY_SECONDS) as limit:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > max_size:
                    raise too_large
                hold(size)
                if not message.get("more_body"):
                    return b"".join(parts)
                limit.reschedule(begin + _BODY_SECONDS + size / _BODY_RATE)
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="timeout", headers=_CLOSE) from None


def parse_body(body: bytes) -> Any:
    """Return the JSON value of a body. Raises ApiError 400."""
    if body.count(b",") > _MAX_VALUES:
        raise ApiError(400, f"The body has more than {_MAX_VALUES} values.", code="too_large")
    try:
        return parse_json(body.decode(), _JSON)
    except UnicodeDecodeError:
        raise ApiError(400, "The body is not UTF-8 text.", code="invalid_json") from None
    except GencliError as error:
        raise ApiError(400, f"The body is not JSON: {error.message}", code="invalid_json") from None


_STRUCTURES = tuple("json_schema regex grammar lark structural_tag tools choice stages fields".split())


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of sizes: in bytes (body, structure, template variables), characters (prompt) or numbers.

    `per_token`: characters of a prompt for each token of the model's context. `tokenize`: characters of a
    text that is only tokenized. `texts`: texts of one call, over all prompts and samples. `trace`: ids in a
    list, 0 disables traces. `processed`: whether log-probabilities after the stages are allowed.
    `traced_stages`: stages of an explained chain, which is rerun without each of them. `traced_ids`: ids in
    all records of a call. `grammar_seconds`: time limit for compiling a grammar.
    """

    body: int = 8 << 20
    prompt: int = 4 << 20
    per_token: int = 64
    tokenize: int = 1 << 20
    prompts: int = 256
    samples: int = 128
    texts: int = 1024
    messages: int = 4096
    stops: int = 64
    stop_length: int = 1000
    patterns: int = 8
    entries: int = 4096
    structure: int = 256 << 10
    text: int = 64 << 10
    logprobs: int = 20
    trace: int = 20
    processed: bool = True
    traced_stages: int = 32
    traced_ids: int = 100_000
    presets: int = 8
    variables: int = 1 << 20
    retries: int = 8
    grammar_seconds: float = 30.0


def _check_text(field: str, size: int, limits: CallLimits, context: int) -> None:
    # Tokenizing millions of characters, which cannot fit into the context, takes seconds, during which no
    # other prompt is tokenized.
    if size > limits.per_token * max(context, 1024):
        takes = f"the model takes {context} tokens with the output"
        fault = f"has {size} characters, but {takes}: the prompt is too long."
        raise bad_field(field, fault, code="context_length_exceeded")


def check_call(call: Call, limits: CallLimits, context: int = 1 << 30) -> None:
    """Raise ApiError for the first size of a call over its limit; `context` is in tokens."""
    values = call.options.values
    _check_number("prompt", len(call.prompts), limits.prompts, "prompts")
    _check_number("messages", len(call.messages), limits.messages, "messages")
    _check_number("preset", len(call.presets), limits.presets, "presets")
    for prompt in call.prompts:
        _check_number("prompt", len(prompt), limits.prompt, "characters or ids")
        _check_text("prompt", len(prompt), limits, context)
    _check_text("suffix", len(call.suffix), limits, context)
    if call.variables:
        size = len(json.dumps(call.variables))
        _check_number("chat_template_kwargs", size, limits.variables, "bytes")
    written = sum(len(str(message)) for message in call.messages)
    _check_number("messages", written, limits.prompt, "characters")
    _check_text("messages", written, limits, context)
    for key, count in (("stop", limits.stops), ("stop_regex", limits.patterns), ("stop_id", limits.stops)):
        _check_list(call, key, count)
        for text in _texts(values.get(key)):
            _check_number(call.options.fields[key], len(text), limits.stop_length, "characters")
    lists = "logit_bias sequence_bias allow_ids suppress_ids ban dry_breaker choice chain stages fields"
    for key in lists.split():
        _check_list(call, key, limits.entries)
    biased = [token for token, _ in values.get("logit_bias", ()) if isinstance(token, str)]
    _check_number("logit_bias", sum(map(len, biased)), limits.text, "characters of texts")
    for key in _STRUCTURES:
        if key in values:
            _check_number(call.options.fields[key], len(str(values[key]).encode()), limits.structure, "bytes")
    for key in ("negative", "system"):
        _check_text(call.options.fields.get(key, key), len(str(values.get(key, ""))), limits, context)
    for key, value in values.items():
        if key not in (*_STRUCTURES, "negative", "system"):
            for text in _texts(value):
                _check_number(call.options.fields[key], len(text), limits.text, "characters")
    _check_number("prompt_logprobs", call.prompt_logprobs or 0, limits.logprobs, "")
    _check_number("top_logprobs" if call.is_chat else "logprobs", call.logprobs or 0, limits.logprobs, "")
    for key, limit in (
        *((key, limits.samples) for key in ("n", "best_of", "beams", "contrastive_k")),
        ("retries", limits.retries),
        ("grammar_timeout", limits.grammar_seconds),
    ):
        value = values.get(key)
        number = value if isinstance(value, int | float) else whole(str(value)) or 0
        _check_number(call.options.fields.get(key, key), number, limit, "")
    _check_number("n" if "n" in values else "prompt", call.num_samples, limits.texts, "texts")
    trace = values.get("trace")
    if trace is not None and not limits.trace:
        raise bad_field("trace", "is refused: this server explains no tokens.", code="unsupported_value")
    if isinstance(trace, int):  # another type is refused together with other options
        _check_number("trace", trace, limits.trace, "")
    if call.is_processed and not limits.processed:
        fault = "processed_logprobs is refused on a server with a watermark: it shows what the mark prefers."
        raise ApiError(400, fault, param="logprobs_mode", code="unsupported_value")


def check_traced(orders: Sequence[EngineOrder], limits: CallLimits, context: int) -> None:
    """Raise ApiError for a call whose trace would take too long to compute, or be too large.

    The size is estimated for texts of full length: `trace` ids for the model, for the draw and for each
    stage.
    """
    count = 0
    for request, structure in ((order.request, order.structure) for order in orders):
        if request.trace is None:
            continue
        stages, tokens = len(list(request.chain.active())), request.limits.max_tokens
        if not tokens:
            raise bad_field("trace", "explains tokens, but with max_tokens = 0 none is generated.")
        if stages > limits.traced_stages:
            fault = f"explains at most {limits.traced_stages} stages, but the chain has {stages}."
            raise bad_field("trace", fault, code="too_large")
        texts = max(request.n, request.best_of or 1) * (1 + (structure.retries if structure else 0))
        count += request.trace * (2 + stages) * texts * min(tokens, context - len(request.prompt_ids))
    if count > limits.traced_ids:
        fault = f"would list up to {count:,} ids, but at most {limits.traced_ids:,} are allowed"
        raise bad_field("trace", f"{fault}: lower trace, max_tokens or n.", code="too_large")


def _check_list(call: Call, key: str, limit: int) -> None:
    value = call.options.values.get(key)
    if isinstance(value, list | dict):
        _check_number(call.options.fields[key], len(value), limit, "entries")


def _texts(value: Any) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]


def _check_number(field: str, number: float, limit: float, unit: str) -> None:
    if number > limit:
        fault = f"is {number:g}, but has to be at most {limit:g}."
        if unit:
            fault = f"has {number:g} {unit}, but at most {limit:g} are allowed."
        raise bad_field(field, fault, code="too_large")


@dataclass(frozen=True, slots=True)
class Conditions:
    """Access rules, limits of a call, length of the queue, and timeouts in seconds.

    `max_queue`: samples of a model beyond those that run at once. `queue_timeout`: limit until the first
    token of a call. `shutdown_timeout`: limit for running calls at shutdown. `write_timeout`: limit for a
    client that reads nothing. `ping`: interval between comments that keep a stream open.
    """

    rules: AccessRules = field(default_factory=AccessRules)
    limits: CallLimits = field(default_factory=CallLimits)
    max_queue: int = 256
    queue_timeout: float = 120.0
    shutdown_timeout: float = 10.0
    write_timeout: float = 60.0
    ping: float = 15.0
    is_lenient: bool = False
