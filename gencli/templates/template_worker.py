"""The process that renders templates with Jinja2's sandbox and a memory limit.

`python -m gencli.templates.template_worker` reads a RenderOrder and answers with a Rendered (see
processors.child).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import UndefinedError
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import TrackingCodeGenerator
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gencli.templates.chat_templates import MAX_MEMORY, Rendered, RenderOrder
from processors.child import limit_memory, serve


class _Generation(Extension):
    """`{% generation %}` marks the model's text for training; its body is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return str(caller())


@cache
def _chat() -> ImmutableSandboxedEnvironment:
    """Return the environment of chat templates, as transformers configures it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


@cache
def _prompt() -> ImmutableSandboxedEnvironment:
    # `optimized` = False: without constant folding.
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, optimized=False
    )


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:  # noqa: A002 - templates may name the argument
    return datetime.now().strftime(format)


@cache
def _template(text: str, is_chat: bool) -> Template:
    return (_chat if is_chat else _prompt)().from_string(text)


def render_here(order: RenderOrder) -> Rendered:
    """Render a template in this process, without a limit of time or memory. Failures are in `error`.

    Only for trusted templates; `renderer` renders all others.
    """
    try:
        template = _template(order.template, order.is_chat)
        if order.variables is None:
            reader = TrackingCodeGenerator(template.environment)
            reader.optimizer = None  # disables constant folding
            reader.visit(template.environment.parse(order.template))
            return Rendered(names=tuple(sorted(reader.undeclared_identifiers)))
        parts: list[str] = []
        size = 0
        for part in template.generate(order.variables):
            size += len(part)
            if size > order.limit:
                return Rendered(error=f"the result is longer than {order.limit} characters")
            parts.append(part)
        return Rendered("".join(parts))
    except MemoryError:
        return Rendered(error=f"it needs more than {MAX_MEMORY >> 20} MiB of memory")
    except RecursionError:
        return Rendered(error="it is nested too deep")
    except TemplateSyntaxError as error:
        return Rendered(error=str(error.message), line=error.lineno)
    except TemplateError as error:
        is_undefined = isinstance(error, UndefinedError)
        return Rendered(error=str(error.message or type(error).__name__), is_undefined=is_undefined)
    except Exception as error:  # for example a filter with a value of the wrong type
        return Rendered(error=str(error) or type(error).__name__)


_STACK = 8 << 20


def _answer(question: Callable[[], Any], reply: Callable[[Any], None]) -> None:
    question()  # the first question only waits for the start
    limit_memory(MAX_MEMORY)
    reply(Rendered())
    while True:
        reply(render_here(question()))


if __name__ == "__main__":
    serve(_answer, stack=_STACK)
