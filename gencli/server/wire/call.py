"""A body of /v1/chat/completions or /v1/completions as a `Call`: what to generate and how to reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gencli.server.wire.errors import bad_field, unknown_field
from gencli.server.wire.fields import Options, given_fields, read_options
from gencli.server.wire.messages import read_messages
from gencli.server.wire.responses import chat_body
from gencli.server.wire.taking import Taking, is_id
from gencli.server.wire.variables import read_variables
from gencli.server.wire.vendors import RENAMED
from processors.conversion import whole
from processors.registry import Registry

__all__ = ["Call", "Prompt", "Route", "read_call"]

Route = Literal["chat", "completions", "responses"]
Prompt = str | tuple[int, ...]
_MOST = 2**31 - 1
_LIMITS = ("max_tokens", *(other for other, key in RENAMED.items() if key == "max_tokens"))
_CUTS = ("truncate_prompt_tokens", "truncation_length", "max_context_length")


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request. `logprobs`: number of alternatives, None without log-probabilities.

    Either `prompts` or `messages` is given. `suffix`: the text after the middle that is filled in.
    `has_special`: special tokens are added to a text prompt. `is_continued`: the answer continues the last
    message. `has_chat_draw`: options of the draw without a value take it from the preset `chat`.
    `variables`: of the chat template. `salt`, `priority`: as in Request. `has_usage`: a stream ends
    with the usage. `echo`: texts begin with their prompts. `is_processed`: log-probabilities are taken after
    all stages. `has_bans`: they include the cause that masks a token. `prompt_logprobs`: number of
    alternatives for each prompt token, in a separate field. `ids_as_text`: tokens are written as
    "token_id:5". `has_one_call`: only the first tool call counts. `is_score_only`: nothing is generated.
    `has_reasoning`: the reply has the reasoning. `joined_by`: the field that asks for reasoning inside the
    content. `longest`: the field that asks for a prompt to be cut to a number of tokens, and the number.
    """

    route: Route
    options: Options = field(default_factory=Options)
    prompts: tuple[Prompt, ...] = ()
    suffix: str = ""
    has_special: bool = True
    messages: tuple[Mapping[str, Any], ...] = ()
    is_continued: bool = False
    presets: tuple[str, ...] = ()
    has_chat_draw: bool = False
    model: str = ""
    session: str = ""
    salt: str = ""
    priority: int = 0
    variables: Mapping[str, Any] = field(default_factory=dict)
    is_stream: bool = False
    has_usage: bool = False
    echo: bool = False
    logprobs: int | None = None
    is_processed: bool = False
    has_bans: bool = False
    prompt_logprobs: int | None = None
    ids_as_text: bool = False
    has_ids: bool = False
    has_one_call: bool = False
    is_score_only: bool = False
    has_reasoning: bool = True
    joined_by: str = ""
    longest: tuple[str, int] | None = None

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is a conversation."""
        return self.route != "completions"

    @property
    def num_samples(self) -> int:
        """Number of texts to generate, as far as known before values are checked."""
        asked = [whole(str(self.options.values.get(key, 1))) or 1 for key in ("n", "best_of", "beams")]
        return max(asked) * max(1, len(self.prompts))


def read_call(body: Any, route: Route, *, registry: Registry | None = None, is_lenient: bool = False) -> Call:
    """Return the call of a body. Raises ApiError for the first invalid field."""
    rest = given_fields(chat_body(body) if route == "responses" else body)
    call = _Reader(rest, route).read()
    options = read_options(rest, registry=registry, is_lenient=is_lenient)
    return replace(call, options=options)


class _Reader(Taking):
    """Takes the fields about input and reply out of the body; the remaining fields are options."""

    def __init__(self, rest: dict[str, Any], route: Route) -> None:
        super().__init__(rest)
        self._route: Route = route

    def read(self) -> Call:
        is_chat = self._route != "completions"
        call = Call(
            self._route,
            prompts=() if is_chat else _prompts(self.needed("prompt")),
            messages=read_messages(self.needed("messages")) if is_chat else (),
            presets=self._presets(),
            model=self.text("model"),
            session=self.text("session") or self.text("session_id"),
            salt=self._salt("cache_salt") or self._salt("extra_key"),
            priority=self.whole("priority", -_MOST, _MOST) or 0,
            is_stream=self.flag("stream"),
            ids_as_text=self.flag("return_tokens_as_token_ids"),
            has_ids=self.flag("return_token_ids"),
            has_one_call=not self.flag("parallel_tool_calls", default=True),
            logprobs=self._chat_logprobs() if is_chat else self.count("logprobs"),
            is_processed=self._is_processed(),
            has_bans=self.flag("return_banned_by"),
            prompt_logprobs=self.count("prompt_logprobs"),
            joined_by=self._joined_by(),
            longest=self._longest(),
        )
        call = self._of_chat(call) if is_chat else self._of_text(call)
        call = replace(
            call,
            has_usage=self._has_usage(call.is_stream),
            has_reasoning=self.flag("include_reasoning", default=True),
        )
        self._beams()
        is_scored = call.echo or call.prompt_logprobs is not None
        limit = next((name for name in _LIMITS if self.rest.get(name) == 0), None)
        if is_scored and limit is not None:
            del self.rest[limit]
            call = replace(call, is_score_only=True)
        _check_logprobs(call)
        return call

    def _of_chat(self, call: Call) -> Call:
        is_continued, default = self.flag("continue_final_message") or self.flag("continue_"), True
        if is_continued:
            if self.rest.get("add_generation_prompt") is True:
                raise bad_field(
                    "continue_final_message",
                    "continue_final_message and add_generation_prompt are both true: an answer goes on with "
                    "the last message, or begins a new one. Leave one of them out.",
                )
            if call.messages[-1]["role"] != "assistant":
                what = "continue_final_message needs a last message of the role assistant."
                raise bad_field("continue_final_message", what)
            default = False
        if self.flag("add_special_tokens"):
            raise bad_field("add_special_tokens", "add_special_tokens is true: chat templates add their own.")
        self.flag("add_bos_token")  # templates decide, as in tabbyAPI
        has_begun = self.flag("add_generation_prompt", default=default)
        variables = {**read_variables(self), **({} if has_begun else {"add_generation_prompt": False})}
        return replace(
            call, is_continued=is_continued, variables=variables, has_chat_draw=self.flag("chat_draw")
        )

    def _of_text(self, call: Call) -> Call:
        suffix = self.rest.pop("suffix", "")
        if not isinstance(suffix, str):
            raise bad_field("suffix", "suffix has to be a text.")
        call = replace(
            call,
            suffix=suffix,
            echo=self.flag("echo"),
            has_special=self.flag("add_special_tokens", default=self.flag("add_bos_token", default=True)),
        )
        if suffix and call.echo:
            raise bad_field("suffix", "suffix and echo do not go together: the prompt is not where it was.")
        return call

    def _joined_by(self) -> str:
        """Return the field that asks for reasoning inside the content; "" if none does."""
        form = self.text("reasoning_format") or "auto"
        if form not in ("auto", "deepseek", "none"):
            what = "reasoning_format has to be auto, deepseek, or none."
            raise bad_field("reasoning_format", what, code="unsupported_value")
        if not self.flag("separate_reasoning", default=True):
            return "separate_reasoning"
        return "reasoning_format" if form == "none" else ""

    def _longest(self) -> tuple[str, int] | None:
        """Return the field that asks for a prompt to be cut, with its smallest number."""
        given = [(name, self.whole(name, -1, _MOST)) for name in _CUTS]
        return min(
            ((name, value) for name, value in given if value and value > 0),
            key=lambda pair: pair[1],
            default=None,
        )

    def _salt(self, name: str) -> str:
        """Return the cache salt as in vLLM: 1 to 128 characters that cannot form a path."""
        value = self.rest.pop(name, None)
        if value is None:
            return ""
        if not isinstance(value, str) or not 0 < len(value) <= 128 or set(value) & set("@/\\\0"):
            raise bad_field(name, f"{name} has to be a text of 1 to 128 characters without @, /, \\ and NUL.")
        return value

    def _is_processed(self) -> bool:
        value = self.rest.pop("logprobs_mode", "raw_logprobs")
        if value not in ("raw_logprobs", "processed_logprobs"):
            raise bad_field("logprobs_mode", "logprobs_mode has to be raw_logprobs or processed_logprobs.")
        return bool(value == "processed_logprobs")

    def _chat_logprobs(self) -> int | None:
        is_on, count = self.flag("logprobs"), self.count("top_logprobs")
        if count and not is_on:
            raise bad_field("top_logprobs", "top_logprobs needs logprobs = true.")
        return (count or 0) if is_on else None

    def _has_usage(self, is_stream: bool) -> bool:
        given = self.rest.pop("stream_options", None)
        if given is None:
            return False
        if not isinstance(given, Mapping):
            raise bad_field("stream_options", "stream_options has to be an object.")
        if not is_stream:
            raise bad_field("stream_options", "stream_options needs stream = true.")
        for key, value in given.items():
            if key not in ("include_usage", "include_obfuscation", "continuous_usage_stats"):
                raise unknown_field(f"stream_options.{key}", "Did you mean 'include_usage'?")
            if key == "continuous_usage_stats" and value not in (None, False):
                raise bad_field(f"stream_options.{key}", f"stream_options.{key} is not supported.")
        return bool(given.get("include_usage"))

    def _presets(self) -> tuple[str, ...]:
        given = self.rest.pop("preset", [])
        names = [given] * (given != "") if isinstance(given, str) else given
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise bad_field("preset", "preset has to be the name of a preset, or a list of names.")
        for name in names:
            if len(name) > 100 or not name.replace("-", "").replace("_", "").isalnum():
                raise bad_field("preset", f"preset is {name[:60]!r}, but a request can name no file.")
        return tuple(names)

    def _beams(self) -> None:
        """Translate `use_beam_search`; drop fields of best-of and beam search whose values have no effect."""
        rest = self.rest
        if rest.get("use_beam_search") is True:
            del rest["use_beam_search"]
            if rest.get("temperature") in (0, 1):  # vLLM's callers send one; a search draws nothing
                del rest["temperature"]
            rest["beams"] = rest.pop("best_of", rest.get("n", 1))
        elif rest.get("best_of") == rest.get("n", 1):
            rest.pop("best_of", None)
        if not rest.get("beams"):
            for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
                if rest.get(name) == neutral:
                    del rest[name]


def _check_logprobs(call: Call) -> None:
    """Raise ApiError for inconsistent fields about log-probabilities."""
    if call.logprobs is None:
        for name, is_on in (("logprobs_mode", call.is_processed), ("return_banned_by", call.has_bans)):
            if is_on:
                raise bad_field(name, f"{name} needs logprobs.")
    if call.prompt_logprobs is None:
        return
    if call.is_stream:
        raise bad_field("prompt_logprobs", "prompt_logprobs does not go with stream. Leave one of them out.")
    if call.echo and call.logprobs not in (None, call.prompt_logprobs):
        raise bad_field(
            "prompt_logprobs", "prompt_logprobs and logprobs with echo differ, but both are about the prompt."
        )


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """Return the prompts of a text, a list of texts, a list of ids, or a list of lists of ids."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(map(is_id, value)):
            return (tuple(value),)
        if all(isinstance(item, str) or _is_ids(item) for item in value):
            return tuple(item if isinstance(item, str) else tuple(item) for item in value)
    raise bad_field("prompt", "prompt has to be a text, a list of texts, or one or more lists of token ids.")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_id, value))
