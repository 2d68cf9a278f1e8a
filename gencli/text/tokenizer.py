"""Tokenizers: text to ids and ids to text, for Hugging Face models and for the fake model; prompts that
fill a hole between two texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from gencli.errors import ModelError, UsageError, is_panic
from gencli.helpers import Recent
from gencli.models.files.checkpoint import check_files
from gencli.models.files.gguf_header import is_gguf
from gencli.models.files.local_models import is_bundled
from gencli.models.files.model_card import declared_ends, read_config_if_any, text_part
from gencli.models.files.model_files import read_object_if_any
from gencli.templates.chat_templates import (
    MAX_CHAT,
    Form,
    Rendered,
    RenderOrder,
    content_form,
    in_form,
    renderer,
)
from gencli.text.detokenizer import (
    ByteDecoder,
    PieceRules,
    Pieces,
    TokenDecoder,
    WindowDecoder,
    byte_alphabet,
    read_rules,
)

_RESERVED = {"conversation", "tokenize", "continue_final_message", "messages"}


class Tokenizer(Protocol):
    """A tokenizer as the engine and the command line use it.

    `name`: the folder or name it was loaded from. `vocab_size` counts the tokenizer's ids including added
    tokens, one more than the highest id; logits may have further, unused ids. `eos_ids` end a text; a model's
    generation_config may list more. `bos_id` begins one. `special_ids` are the ids of control tokens, which
    add no text.
    """

    name: str
    vocab_size: int
    eos_ids: tuple[int, ...]
    bos_id: int | None
    special_ids: frozenset[int]

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes that each id adds inside a text; b"" for a special token."""

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` works."""

    @property
    def has_system_turn(self) -> bool:
        """Whether the chat template writes system messages."""

    def renders_tools(self, tools: Sequence[Any]) -> bool:
        """Whether the chat template writes each of these tools into a conversation."""

    def encode(self, text: str, *, special: bool = True, is_plain: bool = False) -> list[int]:
        """Return the ids of `text`; `special` adds the special tokens around a text, at most one BOS.

        `is_plain`: names of special tokens in the text are plain text. ModelError if that is not possible.
        """

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of `ids` with spaces unchanged; bytes that form no character become U+FFFD."""

    def stream(self, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> TokenDecoder:
        """Return a new decoder for the text that follows the prompt."""

    def render_chat(self, messages: Sequence[Mapping[str, str]], **kwargs: Any) -> str:
        """Return the prompt text of a conversation; encode it with special=False."""


class ByteTokenizer(Tokenizer):
    """Ids 0-255 are bytes, 256 is <bos>, 257 is <eos>. No BOS is added; the chat template is plain lines."""

    name = "bytes"
    vocab_size = 258
    eos_ids = (257,)
    bos_id = 256
    special_ids = frozenset({256, 257})
    has_chat_template = has_system_turn = True
    token_bytes: Sequence[bytes] = (*(bytes([byte]) for byte in range(256)), b"", b"")

    def __init__(self) -> None:
        names = [*byte_alphabet().items(), (256, "<bos>"), (257, "<eos>")]
        self._pieces = Pieces(PieceRules(byte_level=True), dict(names).get, self.special_ids)

    def renders_tools(self, tools: Sequence[Any]) -> bool:
        return False

    def encode(self, text: str, *, special: bool = True, is_plain: bool = False) -> list[int]:
        return list(text.encode())  # no special token has a name in a text

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return _decode(self.stream(skip_special=skip_special), ids)

    def stream(self, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> TokenDecoder:
        return ByteDecoder(self._pieces, prompt_ids, skip_special=skip_special)

    def render_chat(self, messages: Sequence[Mapping[str, str]], **kwargs: Any) -> str:
        """Return a line for each message, such as "user: hi", and a last line that begins the answer.

        `add_generation_prompt=False` omits the last line; other arguments are ignored.
        """
        lines = [f"{message['role']}: {message['content']}" for message in messages]
        begun = ["assistant:"] if kwargs.get("add_generation_prompt", True) else []
        return "\n".join([*lines, *begun])


class HFTokenizer:
    """The tokenizer of a Hugging Face model: a FastTokenizer, or one of transformers with the same interface.

    `why_transformers` is the reason why transformers loaded it; "" if transformers was not needed.
    """

    def __init__(self, hf: Any, name: str, why_transformers: str = "") -> None:
        self.name = name
        self.why_transformers = why_transformers
        self._hf = hf
        self._is_bundled = is_bundled(name)
        added = hf.added_tokens_decoder
        # Not len(hf), which counts tokens: some vocabularies skip ids.
        self.vocab_size = 1 + max(hf.get_vocab().values(), default=-1)
        self.bos_id: int | None = hf.bos_token_id
        self.eos_ids: tuple[int, ...] = () if hf.eos_token_id is None else (hf.eos_token_id,)
        marked = {token_id for token_id, token in added.items() if token.special}
        self.special_ids = frozenset(marked | set(hf.all_special_ids))
        backend = getattr(hf, "backend_tokenizer", None)
        decoder = getattr(backend, "decoder", None)
        rules = read_rules(json.loads(decoder.__getstate__())) if decoder else None
        # None for decoders that do not work token by token.
        self._pieces = Pieces(rules, backend.id_to_token, self.special_ids) if backend and rules else None
        self._forms: dict[tuple[str, str], Form] = {}  # by template and role
        # Whether they are written, by template and tools.
        self._tool_places: Recent[tuple[str, str], bool] = Recent(64)

    @classmethod
    def load(
        cls, name: str | Path, *, trust_remote_code: bool = False, local_files_only: bool = True
    ) -> HFTokenizer:
        """Load the tokenizer of a folder, a GGUF file, or a model in the hub's cache.

        transformers is imported only if the tokenizer may differ without it. The model's own code runs only
        with `trust_remote_code`. Raises ModelError.
        """
        from gencli.text.fast_tokenizer import load_fast
        from gencli.text.gguf_tokenizer import load_gguf_tokenizer

        if Path(name).is_dir():
            check_files(Path(name))
        if is_gguf(name):
            return cls(load_gguf_tokenizer(Path(name)), str(name))
        loaded: Any = load_fast(Path(name), trust_remote_code=trust_remote_code)
        hf, why = (None, loaded) if isinstance(loaded, str) else (loaded, "")
        try:
            if hf is None:
                from transformers import AutoTokenizer

                hf = AutoTokenizer.from_pretrained(
                    str(name), trust_remote_code=trust_remote_code, local_files_only=local_files_only
                )
            tokenizer = cls(hf, str(name), why)
            # Without its files transformers builds some tokenizers that have special tokens only.
            is_empty = not set(hf.get_vocab().values()) - tokenizer.special_ids
        except BaseException as error:  # many exception types, and bare Exception of the back end
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise _load_error(name, error) from error
        if is_empty:
            raise _load_error(name, None)
        return tokenizer

    @cached_property
    def token_bytes(self) -> Sequence[bytes]:
        letter = [] if self._pieces else self.encode("a", special=False)

        def after_a_letter(token_id: int) -> bytes:
            return self.stream(letter).push(token_id).encode()

        add, ids = self._pieces.__getitem__ if self._pieces else after_a_letter, range(self.vocab_size)
        return tuple(b"" if token_id in self.special_ids else add(token_id) for token_id in ids)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._hf.chat_template)

    @property
    def has_system_turn(self) -> bool:
        try:
            return self._form("system", {}) != "refused"
        except (ModelError, ValueError):  # they are dropped, or no template is for conversations
            return False

    def renders_tools(self, tools: Sequence[Any]) -> bool:
        """Whether the chat template writes each of these tools into a conversation.

        Other names than theirs are rendered, because a template may change its text beside tools without
        naming them, and a conversation may name them by chance.
        """
        try:
            key = self._hf.get_chat_template(None, tools), json.dumps(tools, default=str)
        except ValueError:
            return False
        return self._tool_places.get(key, lambda: self._writes(tools))

    def _writes(self, tools: Sequence[Any]) -> bool:
        marks = [f"probe_{number}_of_tools" for number in range(len(tools))]
        renamed = [
            {**tool, "function": {**tool["function"], "name": mark}}
            if "function" in tool
            else {**tool, "name": mark}
            for tool, mark in zip(tools, marks, strict=True)
        ]
        kwargs = {"tools": renamed}
        try:
            asked = in_form({"role": "user", "content": "Hello"}, self._form("user", kwargs))
            text = self._probed([asked], {**kwargs, "add_generation_prompt": True})
        except ModelError:  # the conversation itself is refused, with a message of its own
            return False
        return text is not None and all(mark in text for mark in marks)

    def encode(self, text: str, *, special: bool = True, is_plain: bool = False) -> list[int]:
        if is_plain and self._plain is None:  # it only has Python code
            raise ModelError(f"The tokenizer of {self.name} cannot read special tokens as plain text.")
        with self._panics_as_errors("a text"):
            if is_plain:
                ids: list[int] = self._plain.encode(text, add_special_tokens=special).ids
            else:
                ids = list(self._hf.encode(text, add_special_tokens=special, verbose=False))
        while special and self.bos_id is not None and ids[:2] == [self.bos_id, self.bos_id]:
            del ids[0]
        return ids

    @cached_property
    def _plain(self) -> Any:
        """A copy of the library's tokenizer that reads names of special tokens as plain text.

        A copy, because others encode with the original at the same time. None if there is no such tokenizer.
        """
        original = getattr(self._hf, "backend_tokenizer", None)
        try:
            copied = None if original is None else type(original).from_str(original.to_str())
        except Exception:  # bare Exception of the library, for parts in Python
            return None
        if copied is not None:
            copied.encode_special_tokens = True
            copied.no_truncation()
            copied.no_padding()
        return copied

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of `ids` with spaces unchanged; bytes that form no character become U+FFFD.

        Unlike in transformers, a complete character next to a broken `<0xNN>` run is kept.
        """
        return _decode(self.stream(skip_special=skip_special), ids)

    def stream(self, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> TokenDecoder:
        if self._pieces:
            return ByteDecoder(self._pieces, prompt_ids, skip_special=skip_special)

        def text_of(ids: list[int]) -> str:
            with self._panics_as_errors("its own tokens"):
                decode = self._hf.decode
                return str(decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

        hidden = self.special_ids if skip_special else frozenset[int]()
        return WindowDecoder(text_of, self._hf.convert_ids_to_tokens, hidden, prompt_ids)

    def render_chat(self, messages: Sequence[Mapping[str, str]], **kwargs: Any) -> str:
        """Return the prompt text of a conversation; encode it with special=False.

        The template runs in jinja2's sandbox; for models not bundled with gencli also in a process with
        bounded time and memory. `kwargs`: variables of the template, and add_generation_prompt (default
        true). Each content is a text here; the template gets it as a list of typed parts if it wants one.
        Raises ModelError for a template that is missing, fails or drops messages of a role.
        """
        if not self.has_chat_template:
            raise no_template(self.name)
        if reserved := _RESERVED & kwargs.keys():
            raise UsageError(f"{', '.join(sorted(reserved))} cannot be an argument of a chat template.")
        kwargs.setdefault("add_generation_prompt", True)
        try:
            conversation = [in_form(message, self._form(message["role"], kwargs)) for message in messages]
            rendered = self._rendered(conversation, kwargs)
        except ModelError:
            raise
        except Exception as error:  # a tokenizer may have several templates, none of which applies
            raise self._template_error(str(error) or type(error).__name__) from error
        if rendered.error:
            raise self._template_error(rendered.error)
        return rendered.text

    def _form(self, role: str, kwargs: dict[str, Any]) -> Form:
        """Return the form in which the template wants the content of messages of a role."""
        template = self._hf.get_chat_template(None, kwargs.get("tools"))
        key = (template, role)
        if key not in self._forms:
            self._forms[key] = content_form(
                role, lambda probe: self._probed(probe, kwargs), lambda other: self._form(other, kwargs)
            )
        if self._forms[key] == "dropped":
            raise self._template_error(f"it does not write messages of the role {role!r}, in any form.")
        return self._forms[key]

    def _probed(self, conversation: Sequence[Mapping[str, Any]], kwargs: dict[str, Any]) -> str | None:
        rendered = self._rendered([dict(message) for message in conversation], kwargs)
        return None if rendered.error else rendered.text

    def _rendered(self, conversation: list[dict[str, str]], kwargs: dict[str, Any]) -> Rendered:
        """Render the template with the variables that transformers passes."""
        if not conversation:
            raise ValueError("there is no message")
        tokens = {name: str(token) for name, token in self._hf.special_tokens_map.items()}
        variables = {"tools": None, "documents": None, **tokens, **kwargs, "messages": conversation}
        template = self._hf.get_chat_template(None, kwargs.get("tools"))
        order = RenderOrder(template, variables, is_chat=True, limit=MAX_CHAT)
        if self._is_bundled:
            from gencli.templates.template_worker import render_here

            return render_here(order)
        return renderer.render(order)

    def _template_error(self, reason: str) -> ModelError:
        return ModelError(
            f"The chat template of {self.name} failed: {reason}",
            hint="Templates may refuse roles or their order; a raw prompt needs no template.",
        )

    @contextmanager
    def _panics_as_errors(self, source: str) -> Iterator[None]:
        """Turn panics of the library into ModelError: its patterns come from the model's files."""
        try:
            yield
        except BaseException as error:
            if not is_panic(error):
                raise
            raise ModelError(f"The tokenizer of {self.name} failed on {source}: {error}") from None


def _decode(decoder: TokenDecoder, ids: Sequence[int]) -> str:
    return "".join(map(decoder.push, ids)) + decoder.flush()


def no_template(name: str) -> ModelError:
    """Return the error for a tokenizer without a chat template."""
    return ModelError(
        f"{name} has no chat template, so a conversation cannot be rendered.",
        hint="Use a raw prompt or a raw chat, or put a chat_template.jinja into the model's folder.",
    )


def _load_error(name: str | Path, error: BaseException | None) -> ModelError:
    reason = str(error).strip().partition("\n")[0] if error else "it has no vocabulary"
    hint = "A model folder needs its tokenizer files: tokenizer.json, tokenizer_config.json."
    if "trust_remote_code" in str(error):
        hint = "Its tokenizer has code of its own; allow it to run with `trust_remote_code`."
    return ModelError(f"No tokenizer could be loaded from {name}: {reason}", hint=hint)


# Tokens before prefix, suffix and middle, and tokens that end the middle besides end-of-text. Those of
# Codestral are left out: many Mistral tokenizers have them although their models do not know them.
_FAMILIES: tuple[tuple[tuple[str, str, str], tuple[str, ...]], ...] = (
    (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ("<|fim_pad|>",)),  # Qwen, CodeGemma
    (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("<fim_pad>",)),  # StarCoder, Granite
    (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), ("<fim-pad>",)),  # SantaCoder
    (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), ()),  # DeepSeek
    (("▁<PRE>", "▁<SUF>", "▁<MID>"), ("▁<EOT>",)),  # CodeLlama
    (("<PRE>", "<SUF>", "<MID>"), ("<EOT>",)),
    (("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"), ()),  # GLM
)
_NO_SPACES = {0x20: None, 0x2581: None}
_MARK = "\n"  # a text to which no tokenizer prepends a space


@dataclass(frozen=True, slots=True)
class Infill:
    """The ids before prefix, suffix and middle; `ends`: ids that end the middle."""

    prefix: int
    suffix: int
    middle: int
    ends: tuple[int, ...] = ()

    def prompt(self, tokenizer: Tokenizer, before: str, after: str) -> tuple[int, ...]:
        """Return the ids of a fill-in-the-middle prompt; the model continues with the text between both."""
        bos = tokenizer.bos_id
        begin = (bos,) if bos is not None and tokenizer.encode("a")[:1] == [bos] else ()
        head = tokenizer.encode(before, special=False)
        return (*begin, self.prefix, *head, self.suffix, *_inner(tokenizer, after), self.middle)


def infill_of(tokenizer: Tokenizer) -> Infill | None:
    """Return the fill-in-the-middle tokens; None if the tokenizer has none."""
    for names, ends in _FAMILIES:
        tokens, others = _special_ids(tokenizer, names), _special_ids(tokenizer, ends)
        if len(tokens) == len(names):
            prefix, suffix, middle = tokens
            return Infill(prefix, suffix, middle, tuple(others))
    return None


def _special_ids(tokenizer: Tokenizer, names: Iterable[str]) -> list[int]:
    """Return the ids of tokens by name, without names that the tokenizer reads as plain text."""
    special = list[int]()
    for name in names:
        ids = tokenizer.encode(name, special=False)
        # Without spaces, which SentencePiece writes as U+2581 and decoders may drop.
        texts = (text.translate(_NO_SPACES) for text in (name, tokenizer.decode(ids, skip_special=False)))
        if len(ids) == 1 and len(set(texts)) == 1:
            special += ids
    return special


def _inner(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text inside another, without the space that some tokenizers prepend."""
    ids = tokenizer.encode(text, special=False)
    first = tokenizer.encode("a", special=False)
    if not first or not tokenizer.token_bytes[first[0]].startswith(b" "):
        return ids
    mark, both = tokenizer.encode(_MARK, special=False), tokenizer.encode(_MARK + text, special=False)
    return both[len(mark) :] if both[: len(mark)] == mark else ids


# Called with the tokenizer, the width of the logits, and the ids that end a text.
OnTokenizer = Callable[[Tokenizer, int, tuple[int, ...]], None]


def declared_vocabulary(folder: Path, tokenizer: Tokenizer) -> tuple[int, tuple[int, ...]]:
    """Return the width of the logits and the end-of-text ids. Those of the loaded model may differ."""
    width = text_part(read_config_if_any(folder)).get("vocab_size")
    width = width if isinstance(width, int) else tokenizer.vocab_size
    return width, end_ids(declared_ends(folder), tokenizer, width)


def end_ids(declared: Iterable[int], tokenizer: Tokenizer, width: int) -> tuple[int, ...]:
    """Return the end-of-text ids of the model and the tokenizer that are token ids.

    `width` is that of the logits. Ids beyond it, and -1, occur in configurations; they are never sampled.
    """
    end = min(width, tokenizer.vocab_size)
    return tuple(sorted(token for token in {*declared, *tokenizer.eos_ids} if 0 <= token < end))


def idle_ends(declared: Iterable[int], tokenizer: Tokenizer, width: int) -> Iterator[str]:
    """Yield a notice for each declared end-of-text id without a token."""
    usable = end_ids(declared, tokenizer, width)
    for token in declared:
        if token not in usable:
            yield f"Token id {token} is declared to end texts, but the model has none: it is ignored."


def grammar_support(folder: Path) -> Literal["exact", "decoded", "unknown"]:
    """Return how the bytes of a token are known: "exact" by the decoder's rules, or "decoded" in context."""
    if is_gguf(folder):
        return "exact"
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "unknown"
    decoder = read_object_if_any(path).get("decoder")
    return "exact" if decoder and read_rules(decoder) else "decoded"


Difference = tuple[int, str, str]  # token id, and its text in each tokenizer


def first_difference(first: Tokenizer, other: Tokenizer) -> Difference | None:
    """Return the first id with different tokens; None if there is none. Extra ids at one end do not count."""
    pairs = zip(first.token_bytes, other.token_bytes, strict=False)
    for token, (here, there) in enumerate(pairs):
        # Special tokens have no bytes, so their names are compared.
        if here != there or (here == b"" and _token_name(first, token) != _token_name(other, token)):
            return token, _token_name(first, token), _token_name(other, token)
    return None


def _token_name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special=False)
