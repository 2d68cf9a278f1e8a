"""Rows of records: which columns are the prompt, the id, messages, options or data; and the survey of all
rows before the model is loaded. A record is a request line of OpenAI's batch files; with `template` or
`prompt_column` it is data, with options in the column `options`; otherwise its columns are prompt,
messages, id and options. See docs/batch.md and platform.openai.com/docs/guides/batch.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gencli.batch.batch_records import ColumnError, Failure, Record, Row, samples_of
from gencli.batch.input_formats import RecordFault, TableCell, parse_json
from gencli.config.job import REQUEST_KEYS, Job, Jobs, request_layer
from gencli.config.option_names import meant_option
from gencli.config.presets import KEYS
from gencli.config.run_options import OPTIONS
from gencli.config.settings import Settings, SettingsLayer, hint_of
from gencli.errors import UsageError
from gencli.server.wire_calls import drop_idle, inline, read_field
from gencli.server.wire_fields import ApiError
from gencli.server.wire_vendors import UNLIMITED, is_hint
from gencli.structured.schema_inputs import named_file
from gencli.templates.chat_templates import Message, check_messages, has_system, with_system
from gencli.watermark_keys import NamedKey
from processors.params import MOST
from processors.registry import Registry, builtin_registry

if TYPE_CHECKING:
    from gencli.templates.prompt_templates import PromptTemplate


_OPTIONS = "options"
_ID = "id"
_FILE = "file"  # column created by the reader of whole documents


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options that control how columns are read; fields are named after the options.

    `id_column`: "" is none, so that the index of a row is its id.
    """

    template: PromptTemplate | None = None
    prompt_column: str | None = None
    id_column: str | None = None
    keep_input: bool = False

    def __post_init__(self) -> None:
        if self.template and self.prompt_column:
            raise UsageError("`template` and `prompt_column` both define the prompt.", hint="Leave one out.")

    @property
    def is_data(self) -> bool:
        """Whether columns are data, with options in the column `options` only."""
        return self.template is not None or self.prompt_column is not None


def make_rows(records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
    """Yield a row for each record; a fault of a record or its options becomes the `failure` of the row."""

    def make(record: Record, name: str) -> Iterator[Row]:
        prompt, messages, read_options = _parts(record.columns, options)
        if prompt == "":
            raise UsageError("The prompt is empty.")
        if prompt is not None and not isinstance(prompt, str):
            raise UsageError(f"The prompt is {prompt!r}, but has to be a text.")
        row = Row(record, name, None if prompt is None else str(prompt))
        yield row
        row = replace(row, messages=read_messages(messages))
        yield row
        values = read_options()
        if "system" in values and has_system(row.messages):
            raise UsageError("The row has a system message and the option system. Leave one of them out.")
        jobs.job(values, is_chat=messages is not None)
        yield replace(row, options=values)

    return read_rows(records, options, make)


def read_rows(
    records: Iterable[Record], options: RowOptions, make: Callable[[Record, str], Iterator[Row]]
) -> Iterator[Row]:
    """Yield a row for each record: the last one that `make` yields for the record and its id.

    An exception becomes the `failure` of the row so far.
    """
    for record in records:
        row = Row(record, str(record.index), failure=record.failure)
        if not record.failure:
            try:
                row = Row(record, _id(record, options))
                for made in make(record, row.id):
                    row = made
            except RecordFault as error:
                row = replace(row, failure=error.failure)
            except Exception as error:  # an error of any kind fails only this row
                row = replace(row, failure=Failure.of(error))
        yield row


def _id_column(columns: Mapping[str, Any], options: RowOptions) -> str | None:
    if options.id_column is not None:
        return options.id_column or None
    if is_request(columns):
        return "custom_id"
    return _ID if _cell_value(columns.get(_ID)) is not None else None


def _id(record: Record, options: RowOptions) -> str:
    column = _id_column(record.columns, options)
    if column is None:
        return str(record.index)
    if column not in record.columns:
        raise ColumnError(f"The row has no column {column!r}. It has: {listed(record.columns)}.")
    value = record.columns[column]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        if value in (None, ""):
            raise UsageError(f"The id (column {column}) is missing.")
        raise UsageError(
            f"The id (column {column}) is {value!r}, but has to be a text or a whole number.",
            hint="Name another column with `id_column`; '' takes the index of the row.",
        )
    return str(value)


_Parts = tuple[Any, Any, Callable[[], dict[str, Any]]]


def _parts(columns: Mapping[str, Any], options: RowOptions) -> _Parts:
    """Return prompt and messages of a record (one of them None), and what reads its options."""
    if options.is_data:
        prompt, read_options = prompt_of(columns, options), partial(nested_options, columns)
        return (None, prompt, read_options) if isinstance(prompt, list) else (prompt, None, read_options)
    if is_request(columns):
        return read_request({key: value for key, value in columns.items() if key != options.id_column})
    prompt, messages = (_cell_value(columns.get(key)) for key in ("prompt", "messages"))
    if prompt is None and messages is None and columns.get("prompt") == "":
        raise UsageError("The prompt is empty.")
    if prompt is not None and messages is not None:
        raise UsageError("The row has both prompt and messages.", hint="Leave one of them out.")
    if prompt is None and messages is None:
        raise ColumnError(
            f"The row has neither prompt nor messages. It has: {listed(columns)}.",
            hint="Set `prompt_column` or `template`.",
        )
    return prompt, messages, partial(_flat, columns, options)


def prompt_of(columns: Mapping[str, Any], options: RowOptions) -> Any:
    """Return the prompt of columns that are data: the rendered template, or a column's value."""
    if options.template:
        return options.template.render(columns)
    column = options.prompt_column or ""
    if column not in columns:
        raise ColumnError(f"The row has no column {column!r}. It has: {listed(columns)}.")
    if columns[column] is None:
        raise UsageError(f"The prompt (column {column}) is null.")
    return columns[column]


def nested_options(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a row with data columns: the column `options`, if it is an object."""
    value = columns.get(_OPTIONS)
    is_object = isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{"))
    return _object(value) if is_object else {}


def _flat(columns: Mapping[str, Any], options: RowOptions) -> dict[str, Any]:
    nested = _cell_value(columns.get(_OPTIONS))
    values = {} if nested is None else _object(nested)
    for key, value in columns.items():
        if key in ("prompt", "messages", _OPTIONS, _FILE, _id_column(columns, options)):
            continue
        if key not in REQUEST_KEYS:
            if options.keep_input or (key == _ID and not options.id_column):
                continue
            raise refuse_key(key, "prompt", "messages", _OPTIONS)
        if _cell_value(value) is None:
            continue
        if key in values:
            raise UsageError(f"{key} is both a column of the row and in its options. Leave one of them out.")
        values[key] = typed(key, value)
    return values


def listed(columns: Mapping[str, Any]) -> str:
    """Return the names of the columns, as messages show them."""
    return ", ".join(columns) or "no columns"


def _cell_value(value: Any) -> Any:
    return None if isinstance(value, TableCell) and not value else value


def _object(value: Any) -> dict[str, Any]:
    value = parse_json(value) if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        raise UsageError(f"options is {value!r}, but has to be an object of options and values.")
    return {key: item for key, item in value.items() if item is not None}


ROW = "row"  # origin of a row's values
_NAMED = "watermark_key"  # the option whose value is the name of a key
_NO_KEYS: Mapping[str, NamedKey] = MappingProxyType({})
_PER_RUN = {
    "Presets": "presets are read once, before the first row; write the values into the row",
    "Model": "one model serves all rows",
    "Output": "the result of all rows has one form",
}
_OF_PROMPTS = dict.fromkeys(("template", "vars"), "one template makes the prompts of all rows")


def refuse_key(key: str, *more: str) -> ColumnError:
    """Return the error for a key that a row cannot set; `more`: further names to suggest."""
    entry = next((entry for entry in OPTIONS if entry.key == key), None)
    if entry:
        reason = _OF_PROMPTS.get(key) or _PER_RUN.get(entry.section) or entry.flag_only
        return ColumnError(f"{key} is set for the whole run, not by a row: {reason}.")
    if key in builtin_registry().names():
        return ColumnError(f"There is no option {key!r}. It is a stage: write it under stages.")
    spelled = {name: repr(name) for name in (*REQUEST_KEYS, *more)}
    return ColumnError(
        f"There is no option {key!r}. {meant_option(key, spelled)}".rstrip(),
        hint="Columns that are data need `template`, `prompt_column` or `keep_input`.",
    )


def typed(key: str, value: Any) -> Any:
    """Return the value of an option; a table's cell is read as JSON unless the option takes text."""
    if not isinstance(value, TableCell):
        return value
    hint = hint_of(KEYS[key]) if key in KEYS else None
    is_text = hint is not None and (hint is str or KEYS[key].type is str) and not value.startswith("[")
    if is_text or (key in KEYS and KEYS[key].choices):
        return str(value)
    try:
        return parse_json(value.lower() if value in ("True", "False", "TRUE", "FALSE") else value)
    except RecordFault:
        return str(value)


def row_layer(
    options: Mapping[str, Any], registry: Registry, keys: Mapping[str, NamedKey] = _NO_KEYS
) -> SettingsLayer:
    """Return the options of a row as a layer of settings. Raises UsageError for the first invalid one.

    `keys`: watermark keys that a row may select by name.
    """
    for key in options:
        if key not in REQUEST_KEYS:
            raise refuse_key(key)
    values = dict(options)
    name = values.pop(_NAMED, None)
    for key, value in values.items():
        if key == "json_schema" and isinstance(value, Mapping | bool):
            values[key] = json.dumps(value)
        elif named_file(key, str(value)) is not None:  # data must not read files
            raise UsageError(
                f"{key} names a file, which a row cannot read.",
                hint="Write it into the row itself, or set it for the whole run.",
            )
    layer = request_layer(values, registry, ROW)
    if _NAMED not in options:
        return layer
    if isinstance(name, str) and name in keys:
        named = {**layer.values, _NAMED: keys[name]}
        return replace(layer, values=named, places={**layer.places, _NAMED: _NAMED})
    if keys:  # the value is not shown: it might be a secret key
        raise UsageError(f"{_NAMED} names no key of this batch, whose keys are {', '.join(keys)}.")
    raise UsageError(
        f"{_NAMED} names a file, which a row cannot read.",
        hint="Add `named_key` = NAME=FILE, and write NAME into the row.",
    )


def row_jobs(settings: Settings, keys: Mapping[str, NamedKey] = _NO_KEYS) -> Jobs:
    """Return the jobs of a batch's rows; `keys`: watermark keys that rows may select by name."""
    return Jobs(settings, partial(row_layer, keys=keys))


def conversation(row: Row, job: Job) -> tuple[Message, ...]:
    """Return the messages that the chat template renders for a row; () for a raw prompt.

    The job's system message is prepended to messages without a system message.
    """
    if not job.is_chat:
        return ()
    messages = row.messages or ({"role": "user", "content": row.prompt or ""},)
    return with_system(messages, job.system)


def read_messages(value: Any) -> tuple[Message, ...]:
    """Return the messages of a row; () for None. A text is read as JSON. Raises UsageError."""
    if value is None:
        return ()
    return check_messages(parse_json(value) if isinstance(value, str) else value)


URLS = ("/v1/chat/completions", "/v1/completions")
_LINE = {"custom_id", "method", "url", "body"}
_OFF = {"stream": False, "logprobs": False, "echo": False}  # accepted only with their default values
_REASONS = {"length": "length", "error": "error", "interrupted": "interrupted"}


def is_request(columns: Mapping[str, Any]) -> bool:
    """Return whether a record is a request line: it has a custom_id, and a body or a url."""
    return "custom_id" in columns and ("body" in columns or "url" in columns)


def read_request(columns: Mapping[str, Any]) -> _Parts:
    """Return prompt and messages of a request line (one of them None), and what reads its options.

    Raises UsageError for an unknown or unsupported field.
    """
    for key in columns:
        if key not in _LINE:
            raise UsageError(f"A request line has no field {key!r}: it has {', '.join(sorted(_LINE))}.")
    url, method, body = columns.get("url", URLS[0]), columns.get("method", "POST"), columns.get("body")
    if url not in URLS or method != "POST":
        raise UsageError(f"The request is {method} {url}, but has to be POST {' or '.join(URLS)}.")
    if not isinstance(body, Mapping):
        raise UsageError("The request's body has to be an object.")
    fields = {key: value for key, value in body.items() if value is not None and not is_hint(key)}
    content = {key: fields.pop(key) for key in ("prompt", "messages") if key in fields}
    wanted = "messages" if url == URLS[0] else "prompt"
    if list(content) != [wanted]:
        raise UsageError(f"The body of a request to {url} has to have {wanted}, and no other prompt.")
    return content.get("prompt"), content.get("messages"), partial(_options, fields)


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for field, value in body.items():
        if field in _OFF:
            if value != _OFF[field]:
                raise UsageError(f"{field} is {value!r}, which a batch does not support.")
            continue
        try:
            items = {key: inline(key, item, field) for key, item in read_field(field, value).items()}
        except ApiError as error:
            is_unknown = error.code in ("unknown_field", "unsupported_value")
            raise UsageError(_unsupported(field) if is_unknown else error.message) from None
        if not items.keys() <= REQUEST_KEYS:
            raise UsageError(_unsupported(field))
        for key, item in items.items():
            if key in options and options[key] != item:
                raise UsageError(f"{field} says {item!r}, another field says {options[key]!r} for {key}.")
            options[key] = item
    if options.get("max_tokens") == UNLIMITED:
        options["max_tokens"] = MOST  # the model's context ends the text
    try:
        drop_idle(options)
    except ApiError as error:
        raise UsageError(error.message) from None
    return options


def _unsupported(field: str) -> str:
    return f"The field {field} of the body is not supported."


def response_line(name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response line of a row; `result`: a record in the form of `gencli run` with `format` = json.

    A row whose samples all failed has an error and no response. `created` is 0, so equal batches give equal
    files.
    """
    samples = samples_of(result)
    errors = [sample["error"] for sample in samples if sample["error"]]
    line = {"id": f"batch_req_{name}", "custom_id": name}
    if len(errors) == len(samples):
        error = errors[0] if errors else {"type": "error", "message": "There is no result."}
        return {**line, "response": None, "error": {"code": error["type"], "message": error["message"]}}
    prompt = result.get("prompt_tokens") or 0
    completion = sum(sample["completion_tokens"] or 0 for sample in samples)
    body = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 0,
        "model": result.get("model"),
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": sample["text"], "refusal": None},
                "logprobs": None,
                "finish_reason": _REASONS.get(sample["finish_reason"], "stop"),
            }
            for index, sample in enumerate(samples)
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
    }
    return {**line, "response": {"status_code": 200, "request_id": name, "body": body}, "error": None}


Kind = Literal["boolean", "integer", "number", "text"]
_KINDS: Mapping[type, Kind] = {bool: "boolean", int: "integer", float: "number"}
INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a survey. `columns` maps each column to a kind that can hold all its values.

    `num_misnamed` of the `num_read` records have wrong column names. `num_chats` rows need the chat template
    because of their own columns. `digest` is a hash of ids, prompts, messages and options of all rows.
    `options`: keys of all options set by any row.
    """

    num_rows: int
    num_faults: int
    columns: Mapping[str, Kind]
    digest: str
    options: frozenset[str] = frozenset()
    num_read: int = 0
    num_misnamed: int = 0
    num_chats: int = 0

    @property
    def has_only_chats(self) -> bool:
        """Whether all rows without a fault need the chat template."""
        return 0 < self.num_chats == self.num_rows - self.num_faults


def survey(read: Callable[[], Iterable[Row]], on_fault: Callable[[Row], None] | None = None) -> Survey:
    """Read all rows and return the survey; needs eight bytes of memory for each row.

    Raises UsageError for a duplicate id; rows are read again only if two hashes of ids are equal. `on_fault`
    is called with each faulty row.
    """
    ids, digest = IdCheck(), blake2b(digest_size=16)
    kinds: dict[str, Kind | None] = {}
    options: set[str] = set()
    num_rows = num_faults = num_read = num_misnamed = num_chats = 0
    for row in read():
        num_rows += 1
        values = [row.record.index, row.id, row.prompt, row.messages, row.options]
        values += [row.failure and row.failure.message, *([row.scored] if row.scored else [])]
        digest.update(json.dumps(values, sort_keys=True).encode() + b"\n")
        options.update(row.options)
        for name, value in row.record.columns.items():
            kinds[name] = _wider(kinds.get(name), value)
        num_read += row.record.failure is None
        num_chats += not row.failure and bool(row.messages or row.options.get("chat"))
        if row.failure:
            num_faults += 1
            num_misnamed += row.failure.is_of_columns
            if on_fault:
                on_fault(row)
        if not row.record.failure:
            ids.add(row.id)
    ids.refuse_twice((row.id, row.record.place) for row in read() if not row.record.failure)
    columns: dict[str, Kind] = {name: kind or "text" for name, kind in kinds.items()}
    return Survey(
        num_rows,
        num_faults,
        columns,
        digest.hexdigest(),
        frozenset(options),
        num_read,
        num_misnamed,
        num_chats,
    )


def _wider(kind: Kind | None, value: Any) -> Kind | None:
    """Return the kind that can also hold the value; None if all values so far are null."""
    if value is None or kind == "text":
        return kind
    of_value = _KINDS.get(type(value), "text") if type(value) is not int or value in INT64 else "text"
    if kind in (None, of_value):
        return of_value
    return "number" if {kind, of_value} == {"integer", "number"} else "text"


class IdCheck:
    """Stores 64-bit hashes of ids. Ids with equal hashes are compared in a second pass."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, name: str) -> None:
        """Store the hash of an id."""
        self._hashes.append(id_hash(name))

    def suspects(self) -> frozenset[int]:
        """Return the hashes that occur more than once: of equal ids, and rarely of different ones."""
        if not self._hashes:
            return frozenset()
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)
        hashes.sort()  # in place: a copy would double the memory
        return frozenset(hashes[1:][hashes[1:] == hashes[:-1]].tolist())

    def refuse_twice(self, again: Iterable[tuple[str, str]]) -> None:
        """Raise UsageError if an id was added twice.

        `again` yields all ids with their positions; it is read only if two hashes are equal.
        """
        suspects = self.suspects()
        if not suspects:
            return
        positions: dict[str, str] = {}
        for name, position in again:
            if id_hash(name) in suspects:
                if name in positions:
                    raise UsageError(
                        f"The id {name!r} occurs twice, at {positions[name]} and at {position}.",
                        hint="Change one of them, or name another column with `id_column`; '' takes the "
                        "index of the row.",
                    )
                positions[name] = position


def id_hash(name: str) -> int:
    """Return a 64-bit hash of an id, the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
