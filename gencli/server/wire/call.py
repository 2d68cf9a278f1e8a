"""A body of /v1/chat/completions or /v1/completions as a `Call`: what to generate, and how to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gencli.server.wire.errors import ApiError, bad_field, unknown_field
from gencli.server.wire.fields import Options, given_fields, read_options
from gencli.server.wire.messages import read_messages
from gencli.server.wire.responses import chat_body
from processors.params import whole
from processors.registry import Registry

__all__ = ["Call", "Prompt", "Route", "read_call"]

Route = Literal["chat", "completions", "responses"]
Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the wire. `logprobs` is the number of alternatives, None without log-probabilities.

    Either `prompts` or `messages` is given. `variables` are those of the chat template. `has_usage`: a stream
    ends with the usage. `echo`: texts begin with their prompts. `ids_as_text`: tokens are written as
    "token_id:5". With `has_one_call` only the first tool call counts. `is_echo_only`: nothing is generated.
    """

    route: Route
    options: Options = field(default_factory=Options)
    prompts: tuple[Prompt, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    presets: tuple[str, ...] = ()
    model: str = ""
    session: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    is_stream: bool = False
    has_usage: bool = False
    echo: bool = False
    logprobs: int | None = None
    ids_as_text: bool = False
    has_ids: bool = False
    has_one_call: bool = False
    is_echo_only: bool = False

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is a conversation."""
        return self.route != "completions"

    @property
    def num_samples(self) -> int:
        """The number of texts to generate, as far as it can be told before values are checked."""
        asked = [whole(str(self.options.values.get(key, 1))) or 1 for key in ("n", "best_of", "beams")]
        return max(asked) * max(1, len(self.prompts))


def read_call(body: Any, route: Route, *, registry: Registry | None = None, is_lenient: bool = False) -> Call:
    """Return the call of a body. Raises ApiError for the first field that is wrong."""
    rest = given_fields(chat_body(body) if route == "responses" else body)
    call = _Reader(rest, route).read()
    options = read_options(rest, registry=registry, is_lenient=is_lenient)
    return replace(call, options=options)


class _Reader:
    """Takes the fields that say what is sent and how to answer out of the body; the rest are options."""

    def __init__(self, rest: dict[str, Any], route: Route) -> None:
        self._rest = rest
        self._route: Route = route

    def read(self) -> Call:
        is_chat = self._route != "completions"
        call = Call(
            self._route,
            prompts=() if is_chat else _prompts(self._needed("prompt")),
            messages=read_messages(self._needed("messages")) if is_chat else (),
            presets=self._presets(),
            model=self._text("model"),
            session=self._text("session") or self._text("session_id"),
            variables=self._variables() if is_chat else {},
            is_stream=self._flag("stream"),
            echo=not is_chat and self._flag("echo"),
            ids_as_text=self._flag("return_tokens_as_token_ids"),
            has_ids=self._flag("return_token_ids"),
            has_one_call=not self._flag("parallel_tool_calls", default=True),
            logprobs=self._chat_logprobs() if is_chat else self._count("logprobs"),
        )
        call = replace(call, has_usage=self._has_usage(call.is_stream))
        self._beams()
        if call.echo and self._rest.get("max_tokens") == 0:
            del self._rest["max_tokens"]
            call = replace(call, is_echo_only=True)
        return call

    def _needed(self, name: str) -> Any:
        if name not in self._rest:
            raise ApiError(400, f"The body needs {name}.", param=name, code="missing_field")
        return self._rest.pop(name)

    def _flag(self, name: str, *, default: bool = False) -> bool:
        value = self._rest.pop(name, default)
        if not isinstance(value, bool):
            raise bad_field(name, f"{name} has to be true or false.")
        return value

    def _text(self, name: str) -> str:
        value = self._rest.pop(name, "")
        if not isinstance(value, str) or len(value) > 512:
            raise bad_field(name, f"{name} has to be a short text.")
        return value

    def _count(self, name: str) -> int | None:
        value = self._rest.pop(name, None)
        if value is None or value is False:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise bad_field(name, f"{name} has to be a whole number from 0.")
        return value

    def _chat_logprobs(self) -> int | None:
        is_on, count = self._flag("logprobs"), self._count("top_logprobs")
        if count and not is_on:
            raise bad_field("top_logprobs", "top_logprobs needs logprobs = true.")
        return (count or 0) if is_on else None

    def _has_usage(self, is_stream: bool) -> bool:
        given = self._rest.pop("stream_options", None)
        if given is None:
            return False
        if not isinstance(given, Mapping):
            raise bad_field("stream_options", "stream_options has to be an object.")
        if not is_stream:
            raise bad_field("stream_options", "stream_options needs stream = true.")
        for key, value in given.items():
            if key not in ("include_usage", "include_obfuscation", "continuous_usage_stats"):
                raise unknown_field(f"stream_options.{key}", "Did you mean 'include_usage'?")
            if key != "include_usage" and value not in (None, False):
                raise bad_field(f"stream_options.{key}", f"stream_options.{key} is not supported.")
        return bool(given.get("include_usage"))

    def _presets(self) -> tuple[str, ...]:
        given = self._rest.pop("preset", [])
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise bad_field("preset", "preset has to be the name of a preset, or a list of names.")
        for name in names:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise bad_field("preset", f"preset is {name[:60]!r}, but a request can name no file.")
        return tuple(names)

    def _variables(self) -> dict[str, Any]:
        """The variables of the chat template; never the template itself."""
        given = self._rest.pop("chat_template_kwargs", {})
        if not isinstance(given, Mapping):
            raise bad_field("chat_template_kwargs", "chat_template_kwargs has to be an object.")
        for name in ("chat_template", "messages", "tools", "tokenize", "conversation"):
            if name in given:
                raise bad_field(
                    f"chat_template_kwargs.{name}", f"{name} cannot be a variable of the template."
                )
        found = dict(given)
        if "reasoning_effort" in self._rest:
            found["reasoning_effort"] = self._text("reasoning_effort")
        if not self._flag("add_generation_prompt", default=True):
            found["add_generation_prompt"] = False
        if self._flag("continue_final_message"):
            raise bad_field("continue_final_message", "continue_final_message is not supported.")
        return found

    def _beams(self) -> None:
        """A `best_of` that chooses among no more texts than `n` chooses nothing; other names of beams."""
        rest = self._rest
        if rest.get("use_beam_search") is True:
            del rest["use_beam_search"]
            rest["beams"] = rest.pop("best_of", rest.get("n", 1))
        elif rest.get("best_of") == rest.get("n", 1):
            rest.pop("best_of", None)
        if not rest.get("beams"):
            for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
                if rest.get(name) == neutral:
                    del rest[name]


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """A text, a list of texts, a list of ids, or a list of lists of ids."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(map(_is_id, value)):
            return (tuple(value),)
        if all(isinstance(item, str) or _is_ids(item) for item in value):
            return tuple(item if isinstance(item, str) else tuple(item) for item in value)
    raise bad_field("prompt", "prompt has to be a text, a list of texts, or one or more lists of token ids.")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_id, value))


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
