"""The form in which a chat template wants the content of a message: a text, or a list of typed parts.

Templates do not declare it. A probe is rendered in both forms, and the one whose text arrives is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

__all__ = ["Form", "content_form", "in_form"]

Form = Literal["text", "parts", "dropped", "refused"]
Message = Mapping[str, Any]

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
    known = {other: form_of(other) for other in {one["role"] for one in _PROBES[role]} - {role}}
    is_rendered = False
    for form in ("text", "parts"):
        text = render(
            [in_form(one, form if one["role"] == role else known[one["role"]]) for one in _PROBES[role]]
        )
        if text is not None and _MARK in text:
            return form
        is_rendered = is_rendered or text is not None
    return "dropped" if is_rendered else "refused"


def in_form(message: Message, form: Form) -> dict[str, Any]:
    """Return a message whose content is a text in another form."""
    if form != "parts":
        return dict(message)
    return {**message, "content": [{"type": "text", "text": message["content"]}]}
