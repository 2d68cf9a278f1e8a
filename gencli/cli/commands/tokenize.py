"""`gencli tokenize`: the token ids, pieces and bytes of a text, or the text of ids. Loads no weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.parser.prompts import read_prompts
from gencli.cli.terminal.records import FORMAT, record_text
from gencli.cli.terminal.render import Sink, say_notice
from gencli.cli.terminal.tables import table
from gencli.config.options.option import Option
from gencli.config.options.run import option
from gencli.config.options.stages import read_ids
from gencli.config.requests import chat_ids
from gencli.errors import UsageError
from gencli.runtime.machine import quiet_libraries

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli tokenize [OPTIONS] [TEXT]

Show the tokens that a model's tokenizer makes of a text, which is the argument
or comes through a pipe; with --decode, the text of ids. With --chat the text is
a user's message in the model's chat template.
""",
    (
        option("model"),
        option("trust_remote_code"),
        replace(option("chat"), help="Put the text into the model's chat template."),
        option("system"),
        option("show_prompt"),
        Option(("--decode",), str, "Decode these ids, as in 12,7,300.", "Prompt", (), many=True,
               read=read_ids, metavar="IDS"),
        Option(("--special/--no-special",), bool, "Put the tokenizer's own tokens around the text, as a run "
               "does (the default), or not.", "Prompt", True),
        FORMAT,
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "TEXT",
)  # fmt: skip


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the tokens and return the exit code. Raises UsageError for options that exclude each other."""
    values = values_of(PAGE, given)
    _refuse_conflicts(values, arguments, given)
    if len(arguments) > 1:
        raise UsageError("tokenize takes one text.", hint="Put it between quotes.")
    text = "" if values["decode"] else _read(arguments)
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.runtime.model_loading import load_tokenizer

        tokenizer = load_tokenizer(values["model"], trust_remote_code=values["trust_remote_code"])
        ids = values["decode"] or _ids(text, tokenizer, values)
        if values["show_prompt"]:
            from gencli.cli.commands.prompt_view import show_prompts

            show_prompts((text,), (ids,), tokenizer, values["format"], Sink())
            return 0
        record = _record(ids, tokenizer, values["model"])
    if values["format"] == "text":
        Sink().write(record["text"] + "\n" if values["decode"] else _text(record))
    else:
        Sink().write(record_text(record, values["format"]))
    return 0


def _refuse_conflicts(values: Mapping[str, Any], arguments: Sequence[str], given: Mapping[str, Any]) -> None:
    text_options = {
        "a text": bool(arguments),
        "--chat": values["chat"],
        "--show-prompt": values["show_prompt"],
    }
    for name in (name for name, is_on in text_options.items() if is_on and values["decode"]):
        raise UsageError(f"--decode and {name} are both given.", hint="Leave one of them out.")
    if values["chat"] and "special" in given:
        raise UsageError(
            "The chat template has tokens of its own, so --special and --no-special do not go with --chat.",
            hint="Leave one of them out.",
        )
    if values["system"] is not None and not values["chat"]:
        raise UsageError("--system needs --chat: a raw text has no system message.", hint="Add --chat.")


def _ids(text: str, tokenizer: Tokenizer, values: Mapping[str, Any]) -> tuple[int, ...]:
    if values["chat"]:
        return chat_ids(text, tokenizer, values["system"])
    return tuple(tokenizer.encode(text, special=values["special"]))


def _read(arguments: Sequence[str]) -> str:
    """Return the text from the argument or stdin, joined as `gencli run` joins them."""
    prompts = read_prompts(arguments, ())
    for text in prompts.notices:
        say_notice(text)
    return prompts.texts[0]


def _record(ids: Sequence[int], tokenizer: Tokenizer, model: str) -> dict[str, Any]:
    for token in ids:
        if not 0 <= token < tokenizer.vocab_size:
            raise UsageError(f"Token id {token} is not one of {model}'s: 0 to {tokenizer.vocab_size - 1}.")
    text = tokenizer.decode(ids)
    counts = {"tokens": len(ids), "characters": len(text), "bytes": len(text.encode())}
    return {"model": model, "text": text, "counts": counts, "tokens": [_token(one, tokenizer) for one in ids]}


def _token(token: int, tokenizer: Tokenizer) -> dict[str, Any]:
    is_special = token in tokenizer.special_ids
    piece = tokenizer.decode([token], skip_special=False) if is_special else None
    data = tokenizer.token_bytes[token]
    shown = data.decode(errors="replace") if piece is None else piece
    return {"id": token, "piece": shown, "bytes": data.hex(" "), "special": is_special}


def _text(record: Mapping[str, Any]) -> str:
    rows = [("place", "id", "piece", "bytes")]
    for place, token in enumerate(record["tokens"]):
        piece = token["piece"] if token["special"] else repr(token["piece"])
        rows.append((str(place), str(token["id"]), piece, token["bytes"] or "(special)"))
    counts = record["counts"]
    return table(rows) + (
        f"{counts['tokens']} tokens, {counts['characters']} characters, {counts['bytes']} bytes\n"
    )
