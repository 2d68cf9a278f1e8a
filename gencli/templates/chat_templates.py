"""Chat templates: check messages, give them the instructions about the structure of the output, and render
them in the form that the template wants, in a separate process with limits of time and memory.
Templates do not declare that form, a text or a list of typed parts: a probe is rendered in both, and
the one whose text arrives is taken.
"""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, Protocol

from gencli.errors import ModelError, UsageError
from processors.child import OUT_OF_MEMORY, Child, ChildDied, ChildLate

Message = Mapping[str, Any]  # role and content as text; from the server also tool calls
ROLES = ("system", "developer", "user", "assistant", "tool")
_SYSTEM = ROLES[:2]


class ChatTemplate(Protocol):
    """Interface of a tokenizer: renders conversations, and says what its chat template has a place for."""

    @property
    def has_system_turn(self) -> bool:
        """Whether it writes system messages."""

    def renders_tools(self, tools: Sequence[Any]) -> bool:
        """Whether it writes each of these tools into a conversation."""

    def render_chat(self, messages: Sequence[Mapping[str, str]], **kwargs: Any) -> str:
        """Return the prompt text of a conversation."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """Texts for the system turn, or before a raw prompt.

    `text` is in every prompt; "" is none. `tools`: for the chat template. `tools_text` tells the tools where
    the template does not; "" does not tell them. `is_raw_told`: raw prompts have `tools_text` as well.
    `notice`: for the user, before the run.
    """

    text: str = ""
    tools: tuple[Any, ...] = ()
    tools_text: str = ""
    is_raw_told: bool = False
    notice: str = ""

    @property
    def before(self) -> str:
        """The text before a raw prompt, with the empty line between them; "" without one."""
        text = _joined(self.text, self.tools_text if self.is_raw_told else "")
        return f"{text}\n\n" if text else ""

    def tools_of(self, template: ChatTemplate) -> tuple[Any, ...]:
        """Return the tools that the chat template renders; () if it has no place for them."""
        return self.tools if self.tools and template.renders_tools(self.tools) else ()

    def added(
        self, messages: Sequence[Message], template: ChatTemplate, *, has_place: bool
    ) -> tuple[Message, ...]:
        """Return the messages with the texts: at the end of the system turn, which is made if there is none.

        If the template takes no system turn, the texts are before the first message of the user. `has_place`:
        whether the template writes the tools.
        """
        text = _joined(self.text, "" if has_place else self.tools_text)
        if not text:
            return tuple(messages)
        if messages and messages[0]["role"] in _SYSTEM:
            first, *later = messages
            return {**first, "content": _joined(first["content"], text)}, *later
        if template.has_system_turn:
            return {"role": "system", "content": text}, *messages
        index = next((n for n, message in enumerate(messages) if message["role"] == "user"), None)
        if index is None:
            return {"role": "user", "content": text}, *messages
        question = {**messages[index], "content": _joined(text, messages[index]["content"])}
        return *messages[:index], question, *messages[index + 1 :]

    def notices(self, template: ChatTemplate) -> tuple[str, ...]:
        """Return what the user should know about tools in conversations of this model."""
        text = ""
        if self.tools and not self.tools_of(template):
            if self.tools_text and not self.is_raw_told:
                text = (
                    "so a text in the prompt tells the model of them; `schema_in_prompt` = off leaves it out."
                )
            elif not self.tools_text and not self.text:
                text = "and `schema_in_prompt` is off: nothing tells the model of them."
        return (f"The chat template has no place for tools, {text}",) if text else ()


NOTHING = Instructions()


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def check_messages(messages: Any) -> tuple[Message, ...]:
    """Return the messages with `role` and `content` as text. Content in text parts is joined.

    Raises UsageError unless it is a non-empty sequence of valid messages; the error has the number of the
    invalid one.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise UsageError("messages has to be a list of objects with role and content, and not empty.")
    checked = []
    for number, message in enumerate(messages, start=1):
        name = f"Message {number}"
        if not isinstance(message, Mapping):
            raise UsageError(f"{name} is {message!r}, but has to be an object with role and content.")
        unknown = [k for k, value in message.items() if k not in ("role", "content") and value is not None]
        if unknown:
            raise UsageError(f"{name} has {unknown[0]!r}, but a message has role and content only.")
        role = message.get("role")
        if role not in ROLES:
            raise UsageError(f"{name} has the role {role!r}, but it is one of {', '.join(ROLES)}.")
        checked.append({"role": role, "content": text_content(message.get("content"), name)})
    return tuple(checked)


def text_content(value: Any, name: str) -> str:
    """Return the text of a message's content; text parts are joined. Raises UsageError with `name`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise UsageError(f"{name} has no content that is a text.")
    for part in value:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            other = f": {kind}" if kind not in (None, "text") else ""
            raise UsageError(f"{name} has a part that is not text{other}.")
    return "".join(part["text"] for part in value)


def has_system(messages: Sequence[Message]) -> bool:
    """Whether the messages begin with a system message."""
    return bool(messages) and messages[0].get("role") in _SYSTEM


def with_system(messages: Sequence[Message], system: str | None) -> tuple[Message, ...]:
    """Return the messages; `system` is prepended if they have no system message."""
    if system is None or has_system(messages):
        return tuple(messages)
    return ({"role": "system", "content": system}, *messages)


def render_conversation(
    tokenizer: ChatTemplate,
    messages: Sequence[Message],
    *,
    system: str | None = None,
    instructions: Instructions = NOTHING,
    variables: Mapping[str, Any] | None = None,
    is_continued: bool = False,
) -> str:
    """Return the messages rendered by the chat template, with `system` as in `with_system`.

    `instructions`: texts that are added to the messages, and tools for a template that has a place for them.
    `variables`: further variables of the template. With `is_continued` the text ends with the last message,
    so that the model continues it. Raises ModelError if the model has no chat template, or if the template
    fails.
    """
    tools = instructions.tools_of(tokenizer)
    kwargs = {**(variables or {}), **({"tools": list(tools)} if tools else {})}
    messages = instructions.added(with_system(messages, system), tokenizer, has_place=bool(tools))
    if not is_continued:
        return tokenizer.render_chat(messages, **kwargs)
    *earlier, last = messages
    mark = f"END{secrets.token_hex(8)}"  # templates may strip a content, or quote it
    marked = {**last, "content": last["content"] + mark}
    kwargs["add_generation_prompt"] = False
    text, separator, _ = tokenizer.render_chat((*earlier, marked), **kwargs).rpartition(mark)
    if not separator:
        raise ModelError(
            "The chat template does not write the last message, so an answer cannot continue it."
        )
    return text


Form = Literal["text", "parts", "dropped", "refused"]

_MARK = "Probe7of7the7content"
_CALL = {"id": "call00000", "type": "function", "function": {"name": "probe", "arguments": {}}}
_FIRST: Message = {"role": "user", "content": "Hello"}
# The shortest conversation with a message of each role; it is the one with the mark.
_PROBES: dict[str, tuple[Message, ...]] = {
    "user": ({"role": "user", "content": _MARK},),
    "system": ({"role": "system", "content": _MARK}, _FIRST),
    "developer": ({"role": "developer", "content": _MARK}, _FIRST),
    "assistant": (_FIRST, {"role": "assistant", "content": _MARK}, _FIRST),
    "tool": (
        _FIRST,
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": _MARK, "name": "probe", "tool_call_id": "call00000"},
    ),
}


def content_form(
    role: str, render: Callable[[Sequence[Message]], str | None], form_of: Callable[[str], Form]
) -> Form:
    """Return the form that a template wants for messages of a role.

    dropped: the text arrives in no form. refused: the template fails with such a message in any form.
    `render` renders a conversation; None if the template fails. `form_of` is the form of another role.
    """
    others = {message["role"] for message in _PROBES[role]} - {role}
    forms: dict[str, Form] = {other: form_of(other) for other in others}
    is_rendered = False
    for form in ("text", "parts"):
        forms[role] = form
        text = render([in_form(message, forms[message["role"]]) for message in _PROBES[role]])
        if text is not None and _MARK in text:
            return form
        is_rendered = is_rendered or text is not None
    return "dropped" if is_rendered else "refused"


def in_form(message: Message, form: Form) -> dict[str, Any]:
    """Return a message whose content is a text in another form."""
    if form != "parts":
        return dict(message)
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


_START = 60.0  # seconds that the process may take to start on a busy machine


class Renderer:
    """Starts the process at the first template and keeps it; starts another after a timeout or crash."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._lock = Lock()

    def render(self, order: RenderOrder) -> Rendered:
        """Render a template, within SECONDS and MAX_MEMORY. Failures are in the result's `error`."""
        with self._lock:
            try:
                if self._child is None or not self._child.is_alive:
                    self._child = Child("gencli.templates.template_worker")
                    self._child.ask(None, _START)
                rendered: Rendered = self._child.ask(order, SECONDS)
                return rendered
            except ChildLate:
                return Rendered(error=f"it did not end within {SECONDS:g} seconds")
            except ChildDied as died:
                memory = f"it needs more than {MAX_MEMORY >> 20} MiB of memory"
                return Rendered(error=memory if died.code == OUT_OF_MEMORY else "its process died")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child = None


renderer = Renderer()
atexit.register(renderer.close)


MAX_CHAT = 2**24  # characters of a rendered conversation
MAX_PROMPT = 2**20  # characters of a rendered prompt
MAX_MEMORY = 512 << 20  # bytes that the process may allocate after its start
SECONDS = 5.0  # seconds of wall-clock time for one rendering


@dataclass(frozen=True, slots=True)
class RenderOrder:
    """A template and its variables; variables of None only check the syntax.

    `is_chat`: use the environment of chat templates instead of that of prompts. `limit`: maximum length of
    the result in characters.
    """

    template: str
    variables: Mapping[str, Any] | None
    is_chat: bool
    limit: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered text, or the error and, for wrong syntax, its line.

    `is_undefined`: the template uses a variable without a value. `names`: the sorted variables of a template
    whose syntax was checked.
    """

    text: str = ""
    error: str = ""
    line: int = 0
    is_undefined: bool = False
    names: tuple[str, ...] = ()
