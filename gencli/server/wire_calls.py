"""A body of /v1/chat/completions, /v1/completions or /v1/responses as a `Call`: what to generate and how
to reply. Nothing is stored: a conversation is sent completely each time. Source: OpenAI's reference of
responses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gencli.config.job import REQUEST_KEYS
from gencli.config.option_names import meant_option
from gencli.errors import GencliError
from gencli.helpers import shortened
from gencli.server.wire_fields import (
    ApiError,
    FieldReader,
    bad_field,
    is_id,
    read_messages,
    read_variables,
    unknown_field,
    without_unknown,
)
from gencli.server.wire_vendors import INSTEAD, NEUTRAL, RENAMED, SPECIAL, asks_for_nothing, is_hint
from gencli.structured.schema_inputs import is_schema_name, named_file, parse_concise
from processors.params import whole
from processors.registry import Registry, builtin_registry

# The route decides whether there is a chat template; the other sections are about the output of a run.
# Log-probabilities have their own fields on each route. Clients cannot turn the server's watermark off.
_MARK = frozenset(("watermark", "watermark_key"))
BODY_KEYS = REQUEST_KEYS - {"chat", "raw", "pydantic", "logprobs", "prompt_logprobs"} - _MARK | {"trace"}
_MAX_CONCISE = 1 << 16  # characters of a schema in the concise notation
# Fields besides the options: about input and reply.
CALL_FIELDS = (
    "prompt messages suffix preset chat_draw model session cache_salt priority stream stream_options echo "
    "logprobs top_logprobs logprobs_mode return_banned_by prompt_logprobs return_token_ids "
    "return_tokens_as_token_ids parallel_tool_calls add_special_tokens add_generation_prompt "
    "continue_final_message chat_template_kwargs reasoning_effort reasoning include_reasoning thinking "
    "documents response_format"
).split()
_JSON = ("json_schema", "tools", "structural_tag")  # options whose text is a JSON document


@dataclass(frozen=True, slots=True)
class Options:
    """Options by key, the field that gave each, and the fields that were dropped (lenient)."""

    values: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def given_fields(body: Any) -> dict[str, Any]:
    """Return the fields of a body without those that are null. Raises ApiError if it is not a JSON object."""
    if not isinstance(body, Mapping):
        raise ApiError(400, "The body has to be a JSON object.", code="invalid_json")
    return {key: value for key, value in body.items() if value is not None}


def read_options(
    body: Mapping[str, Any], *, registry: Registry | None = None, is_lenient: bool = False
) -> Options:
    """Return the options set by the fields of a body; a null field counts as not given.

    Raises ApiError for a field that is unknown, names a file, or contradicts another. With `is_lenient` an
    unknown field is dropped instead.
    """
    values, fields, dropped = dict[str, Any](), dict[str, str](), []
    for name, value in body.items():
        if value is None or is_hint(name):
            continue
        try:
            of_field = read_field(name, value, registry)
        except ApiError as error:
            if not is_lenient or error.code != "unknown_field":
                raise
            dropped.append(name)
            continue
        for key, item in of_field.items():
            item, before = inline(key, item, name), values.get(key)
            are_stages = key == "stages" and isinstance(item, dict)
            if are_stages and isinstance(before, dict) and not before.keys() & item:
                item = {**before, **item}  # values of other stages
            elif key in values and before != item:
                raise bad_field(name, f"and {fields[key]} set the same option ({key}) to different values.")
            values[key], fields[key] = item, name
    drop_idle(values)
    return Options(values, fields, tuple(dropped))


def read_field(name: str, value: Any, registry: Registry | None = None) -> dict[str, Any]:
    """Return the options set by a field. Raises ApiError for an unknown field."""
    if name in SPECIAL:
        return SPECIAL[name](name, value)
    key = RENAMED.get(name, name)
    if key in BODY_KEYS:
        return {key: value}
    if asks_for_nothing(name, value):
        return {}
    raise _unknown(name, value, registry or builtin_registry())


def _unknown(name: str, value: Any, registry: Registry) -> ApiError:
    if name in registry.names():
        return unknown_field(name, f"It is a stage: write it under stages, as in {{{name!r}: ...}}.")
    if name in _MARK:
        return unknown_field(name, "The watermark is set for the whole server.")
    if name in CALL_FIELDS:
        return unknown_field(name, "It is a field of other routes.")
    hint = f"The nearest field is {INSTEAD[name]}." if name in INSTEAD else ""
    if name in NEUTRAL:
        message = f"{name} is {shortened(repr(value), 40)}, which this server cannot do. Leave it out."
        return ApiError(400, message, param=name, code="unsupported_value", hint=hint)
    spelled = {key: repr(key) for key in (*BODY_KEYS, *CALL_FIELDS)}
    return unknown_field(name, hint or meant_option(name, spelled))


def inline(key: str, value: Any, name: str) -> Any:
    """Return the value of an option as text. Raises ApiError for a file name: bodies may read no files."""
    if key == "json_schema" and not isinstance(value, str | Mapping):  # 123 would be read as a name
        raise bad_field(name, "has to have an object as its schema.")
    if key in _JSON and not isinstance(value, str):
        value = json.dumps(value)
    if key == "choice" and value == []:
        raise bad_field(name, "is an empty list: there is nothing to choose.")
    if key == "json_schema" and isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("{") or stripped in ("true", "false"):
            return value
        # Other text might be the name of an existing file.
        if not is_schema_name(value):
            if len(value) > _MAX_CONCISE:
                fault = f"has {len(value)} characters, at most {_MAX_CONCISE} are allowed."
                raise bad_field(name, fault, code="too_large")
            try:
                return json.dumps(parse_concise(value))
            except GencliError as error:
                raise ApiError(400, error.message, param=name, code="invalid_structure") from None
    elif not isinstance(value, str) or named_file(key, value) is None:
        return value
    raise bad_field(name, "names a file, which a request cannot read. Send the text itself.")


def drop_idle(values: dict[str, Any]) -> None:
    """Remove options that ask for nothing in this combination. Raises ApiError for a choice without tools.

    With `tool_choice` none, drop the tools, so that the model does not see them either.

    An empty list is no tools, and `auto` without tools is no choice: some clients send them always.
    """
    if values.get("tools") in ([], "[]"):
        del values["tools"]
    choice = values.get("tool_choice")
    if choice == "none" or (choice == "auto" and "tools" not in values):
        del values["tool_choice"]
        values.pop("tools", None)
    elif "tool_choice" in values and "tools" not in values:
        raise bad_field("tool_choice", "needs tools. Leave it out, or send tools.")


Route = Literal["chat", "completions", "responses"]
Prompt = str | tuple[int, ...]
_MAX_INTEGER = 2**31 - 1
_LENGTH_LIMITS = ("max_tokens", *(other for other, key in RENAMED.items() if key == "max_tokens"))
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
        return self.route != "completions"

    @property
    def num_samples(self) -> int:
        """Number of texts to generate, as far as known before values are checked."""
        counts = [whole(str(self.options.values.get(key, 1))) or 1 for key in ("n", "best_of", "beams")]
        return max(counts) * max(1, len(self.prompts))


def read_call(body: Any, route: Route, *, registry: Registry | None = None, is_lenient: bool = False) -> Call:
    """Return the call of a body. Raises ApiError for the first invalid field."""
    fields = given_fields(chat_body(body) if route == "responses" else body)
    dropped: tuple[str, ...] = ()
    if is_lenient and "messages" in fields:
        fields["messages"], dropped = without_unknown(fields["messages"])
    call = _CallReader(fields).read(route)
    options = read_options(fields, registry=registry, is_lenient=is_lenient)
    return replace(call, options=replace(options, dropped=(*dropped, *options.dropped)))


class _CallReader(FieldReader):
    """Takes the fields about input and reply out of the body; the remaining fields are options."""

    def read(self, route: Route) -> Call:
        is_chat = route != "completions"
        messages = read_messages(self.needed("messages")) if is_chat else ()
        call = Call(
            route,
            prompts=() if is_chat else _prompts(self.needed("prompt")),
            messages=messages,
            presets=self._presets(),
            model=self.text("model"),
            session=self.text("session") or self.text("session_id"),
            salt=self._salt("cache_salt") or self._salt("extra_key"),
            priority=self.whole("priority", -_MAX_INTEGER, _MAX_INTEGER) or 0,
            is_stream=(is_stream := self.flag("stream")),
            ids_as_text=self.flag("return_tokens_as_token_ids"),
            has_ids=self.flag("return_token_ids"),
            has_one_call=not self.flag("parallel_tool_calls", default=True),
            logprobs=self._chat_logprobs() if is_chat else self.count("logprobs"),
            is_processed=self._is_processed(),
            has_bans=self.flag("return_banned_by"),
            prompt_logprobs=self.count("prompt_logprobs"),
            joined_by=self._joined_by(),
            longest=self._longest(),
            **(self._of_chat(messages) if is_chat else self._of_text()),
            has_usage=self._has_usage(is_stream),
            has_reasoning=self.flag("include_reasoning", default=True),
        )
        self._beams()
        is_scored = call.echo or call.prompt_logprobs is not None
        limit = next((name for name in _LENGTH_LIMITS if self.fields.get(name) == 0), None)
        if is_scored and limit is not None:
            del self.fields[limit]
            call = replace(call, is_score_only=True)
        _check_logprobs(call)
        return call

    def _of_chat(self, messages: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
        is_continued = self.flag("continue_final_message") or self.flag("continue_")
        if is_continued and self.fields.get("add_generation_prompt") is True:
            raise bad_field(
                "continue_final_message",
                "and add_generation_prompt are both true: an answer continues the last message, or begins a "
                "new one. Leave one of them out.",
            )
        if is_continued and messages[-1]["role"] != "assistant":
            raise bad_field("continue_final_message", "needs a last message of the role assistant.")
        if self.flag("add_special_tokens"):
            raise bad_field("add_special_tokens", "is true: chat templates add their own.")
        self.flag("add_bos_token")  # templates decide, as in tabbyAPI
        has_begun = self.flag("add_generation_prompt", default=not is_continued)
        variables = {**read_variables(self), **({} if has_begun else {"add_generation_prompt": False})}
        has_chat_draw = self.flag("chat_draw")
        return {"is_continued": is_continued, "variables": variables, "has_chat_draw": has_chat_draw}

    def _of_text(self) -> dict[str, Any]:
        suffix = self.fields.pop("suffix", "")
        if not isinstance(suffix, str):
            raise bad_field("suffix", "has to be a text.")
        echo = self.flag("echo")
        has_special = self.flag("add_special_tokens", default=self.flag("add_bos_token", default=True))
        if suffix and echo:
            fault = "and echo do not go together: a text with a suffix does not begin with its prompt."
            raise bad_field("suffix", fault)
        return {"suffix": suffix, "echo": echo, "has_special": has_special}

    def _joined_by(self) -> str:
        form = self.text("reasoning_format") or "auto"
        if form not in ("auto", "deepseek", "none"):
            fault = "has to be auto, deepseek, or none."
            raise bad_field("reasoning_format", fault, code="unsupported_value")
        if not self.flag("separate_reasoning", default=True):
            return "separate_reasoning"
        return "reasoning_format" if form == "none" else ""

    def _longest(self) -> tuple[str, int] | None:
        limits = [(name, self.whole(name, -1, _MAX_INTEGER)) for name in _CUTS]
        positive = [(name, limit) for name, limit in limits if limit and limit > 0]
        return min(positive, key=lambda pair: pair[1], default=None)

    def _salt(self, name: str) -> str:
        # As in vLLM, 1 to 128 characters that cannot form a path.
        value = self.fields.pop(name, None)
        if value is None:
            return ""
        if not isinstance(value, str) or not 0 < len(value) <= 128 or set(value) & set("@/\\\0"):
            raise bad_field(name, "has to be a text of 1 to 128 characters without @, /, \\ and NUL.")
        return value

    def _is_processed(self) -> bool:
        value = self.fields.pop("logprobs_mode", "raw_logprobs")
        if value not in ("raw_logprobs", "processed_logprobs"):
            raise bad_field("logprobs_mode", "has to be raw_logprobs or processed_logprobs.")
        return bool(value == "processed_logprobs")

    def _chat_logprobs(self) -> int | None:
        is_on, count = self.flag("logprobs"), self.count("top_logprobs")
        if count and not is_on:
            raise bad_field("top_logprobs", "needs logprobs = true.")
        return (count or 0) if is_on else None

    def _has_usage(self, is_stream: bool) -> bool:
        options = self.fields.pop("stream_options", None)
        if options is None:
            return False
        if not isinstance(options, Mapping):
            raise bad_field("stream_options", "has to be an object.")
        if not is_stream:
            raise bad_field("stream_options", "needs stream = true.")
        for key, value in options.items():
            if key not in ("include_usage", "include_obfuscation", "continuous_usage_stats"):
                raise unknown_field(f"stream_options.{key}", "Did you mean 'include_usage'?")
            if key == "continuous_usage_stats" and value not in (None, False):
                raise bad_field(f"stream_options.{key}", "is not supported.")
        return bool(options.get("include_usage"))

    def _presets(self) -> tuple[str, ...]:
        value = self.fields.pop("preset", [])
        names = [value] * (value != "") if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise bad_field("preset", "has to be the name of a preset, or a list of names.")
        for name in names:
            if len(name) > 100 or not name.replace("-", "").replace("_", "").isalnum():
                raise bad_field("preset", f"is {name[:60]!r}, but a request can name no file.")
        return tuple(names)

    def _beams(self) -> None:
        # Fields of best-of and beam search whose values have no effect are dropped.
        fields = self.fields
        if fields.get("use_beam_search") is True:
            del fields["use_beam_search"]
            if fields.get("temperature") in (0, 1):  # vLLM's callers send one; a search draws nothing
                del fields["temperature"]
            fields["beams"] = fields.pop("best_of", fields.get("n", 1))
        elif fields.get("best_of") == fields.get("n", 1):
            fields.pop("best_of", None)
        if not fields.get("beams"):
            for name, neutral in (("length_penalty", 1), ("early_stopping", False)):
                if fields.get(name) == neutral:
                    del fields[name]


def _check_logprobs(call: Call) -> None:
    if call.logprobs is None:
        for name, is_on in (("logprobs_mode", call.is_processed), ("return_banned_by", call.has_bans)):
            if is_on:
                raise bad_field(name, "needs logprobs.")
    if call.prompt_logprobs is None:
        return
    if call.is_stream:
        raise bad_field("prompt_logprobs", "does not go with stream. Leave one of them out.")
    if call.echo and call.logprobs not in (None, call.prompt_logprobs):
        raise bad_field("prompt_logprobs", "and logprobs with echo differ, but both are about the prompt.")


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """Return the prompts of a text, a list of texts, a list of ids, or a list of lists of ids."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(map(is_id, value)):
            return (tuple(value),)
        is_ids = (isinstance(item, list) and bool(item) and all(map(is_id, item)) for item in value)
        if all(has_ids or isinstance(item, str) for item, has_ids in zip(value, is_ids, strict=True)):
            return tuple(item if isinstance(item, str) else tuple(item) for item in value)
    raise bad_field("prompt", "has to be a text, a list of texts, or one or more lists of token ids.")


_ROLES = ("user", "assistant", "system", "developer")
_RENAMED = {"max_output_tokens": "max_tokens"}
# Fields that do not change a text here: a limit is for calls of tools that a server runs by itself, and an
# input that is too long is refused.
_WITHOUT_EFFECT = ("stream_options", "max_tool_calls")
_LOGPROBS = "message.output_text.logprobs"  # the only supported value of `include`
_STORED = "nothing is stored, so send the whole input"
# Values with which a field has no effect, and why another one is refused.
_ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "a response is sent when it is complete, or as a stream"),
    "truncation": (("disabled", "auto"), "it has to be auto or disabled"),
    "previous_response_id": ((), _STORED),
    "conversation": ((), _STORED),
    "previous_response": ((), _STORED),
    "prompt": ((), "no prompts are stored, so send its text as input or instructions"),
}
_SINGLE = ("n", "n_cmpl", "num_return_sequences")
_NOT_SHOWN = ("return_token_ids", "prompt_logprobs", "trace")  # fields without a place in the reply


def chat_body(body: Any) -> dict[str, Any]:
    """Return the equivalent body of a chat completion. Raises ApiError for features without an equivalent."""
    fields = given_fields(body)
    if "input" not in fields:
        raise ApiError(400, "The body needs input.", param="input", code="missing_field")
    for name, (values, why) in _ONLY.items():
        if name in fields and fields.pop(name) not in values:
            raise bad_field(name, f"is not supported: {why}.", code="unsupported_value")
    for name in _SINGLE:
        if fields.pop(name, 1) != 1:
            raise bad_field(name, "has to be 1: a response has one answer.", code="unsupported_value")
    for name in _NOT_SHOWN:
        if fields.pop(name, False) is not False:
            fault = "is not supported for responses. Ask /v1/chat/completions."
            raise bad_field(name, fault, code="unsupported_value")
    messages = _messages(fields.pop("input"))
    if "instructions" in fields:
        messages.insert(0, {"role": "system", "content": fields.pop("instructions")})
    chat: dict[str, Any] = {"messages": messages}
    for name, value in fields.items():
        if name in _WITHOUT_EFFECT:
            continue
        for key, item in _field(name, value).items():
            if chat.setdefault(key, item) != item:
                raise bad_field(name, "contradicts another field of the body. Leave one of them out.")
    return chat


def _field(name: str, value: Any) -> dict[str, Any]:
    if name == "text":
        return _text(value)
    if name == "tools":
        return {"tools": _tools(value)}
    if name == "top_logprobs":
        return {"logprobs": True, "top_logprobs": value} if value else {}
    if name == "include":
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise bad_field("include", "has to be a list of names.")
        return {"logprobs": True} if _LOGPROBS in value else {}
    return {_RENAMED.get(name, name): value}


def _text(value: Any) -> dict[str, Any]:
    """Return `text.format` as chat's response_format, which wraps the schema, and `verbosity`."""
    if not isinstance(value, Mapping):
        raise bad_field("text", "has to be an object.")
    form, hint = value.get("format"), value.get("verbosity")
    chat = {} if hint is None else {"verbosity": hint}
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        return chat if form is None else {**chat, "response_format": form}
    if "schema" not in form:
        raise bad_field("text.format", "has to have a schema, as its type is json_schema.")
    return {**chat, "response_format": {"type": "json_schema", "json_schema": {"schema": form["schema"]}}}


def _tools(value: Any) -> Any:
    """Return the tools in chat form; here a tool's name is a sibling of its type."""
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise bad_field("tools", "has to be a list of functions.")
    chat = []
    for tool in value:
        if tool.get("type") != "function":
            raise bad_field("tools", f"has {str(tool.get('type'))[:60]!r}, but only functions are known.")
        inner = {key: item for key, item in tool.items() if key != "type" and item is not None}
        chat.append({"type": "function", "function": inner})
    return chat


def _messages(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise bad_field("input", "has to be a text, or a list of items.")
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(value):
        message = _message(item, f"input[{number}]")
        if message is None:
            continue
        # Calls of one turn are separate items here, but one message in chat.
        if "tool_calls" in message and messages and messages[-1]["role"] == "assistant":
            calls = messages[-1].get("tool_calls", [])
            messages[-1]["tool_calls"] = [*calls, *message["tool_calls"]]
        else:
            messages.append(message)
    return messages


def _message(item: Any, path: str) -> dict[str, Any] | None:
    """Return the message of an item; None for reasoning, which is not passed to the model again."""
    kind = item.get("type", "message") if isinstance(item, Mapping) else None
    if kind == "message":
        if item.get("role") not in _ROLES:
            raise bad_field(path, f"has to have a role: {', '.join(_ROLES)}.")
        return {"role": item["role"], "content": item.get("content")}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    if kind == "reasoning":
        return None
    raise bad_field(path, f"is an item of a type that is not supported: {str(kind)[:60]!r}.")
