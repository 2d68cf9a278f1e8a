"""Slash commands that show or change the turns of a conversation."""

from __future__ import annotations

from dataclasses import replace

from gencli.chat.conversation import Conversation, Turn, prompt_ids
from gencli.chat.reply import CommandContext, Reply
from gencli.chat.show import history
from gencli.chat.state import Chat
from gencli.config.chain import Assembly
from gencli.config.job import Job
from gencli.errors import UsageError
from processors.conversion import whole

__all__ = [
    "clear_command",
    "edit_command",
    "history_command",
    "prompt_command",
    "regen_command",
    "same_again",
    "stats_command",
    "tokens_command",
    "undo_command",
    "why_command",
]


def undo_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Remove the last turn."""
    conversation = chat.conversation.undone()
    left = len(conversation.turns)
    return Reply(chat.with_conversation(conversation), f"Removed turn {left + 1}; {left} left.")


def regen_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Answer the last turn again."""
    conversation = chat.conversation.again()
    if _is_repeated(chat.conversation.turns[-1], chat.job):
        raise UsageError(
            "A greedy draw would give the same answer again.", hint="Raise it: /set temperature 0.8."
        )
    turn, attempt = len(conversation.turns), conversation.turns[-1].attempt
    text = f"Turn {turn}, attempt {attempt + 1}: its draws come from (seed, turn, {attempt})."
    return Reply(chat.with_conversation(conversation), text)


def _is_repeated(turn: Turn, job: Job) -> bool:
    """Return whether the job takes the most likely tokens, which the turn's answer has already."""
    if not job.is_greedy or turn.job is None or turn.reason == "interrupted":
        return False
    before, now = (
        replace(one, assembly=Assembly(one.chain), draw_origin="", seed=0) for one in (turn.job, job)
    )
    return before == now


def same_again(before: Conversation, after: Conversation) -> str:
    """Return a notice if another attempt at the last turn gave the same answer, otherwise ""."""
    if not before.turns or not after.turns:
        return ""
    old, new = before.turns[-1], after.turns[-1]
    is_retry = old.user == new.user and old.attempt < new.attempt
    if not is_retry or old.answer != new.answer:
        return ""
    return (
        "The same answer again: with these settings other answers are unlikely. Raise the temperature "
        "(/set temperature), or truncate less (/chain shows the stages)."
    )


def edit_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Replace the last turn, or return its text to the input line; the turn stays until that is sent."""
    if rest:
        return Reply(chat.with_conversation(chat.conversation.edited(rest)))
    draft = chat.conversation.last().user
    text = f"Turn {len(chat.conversation.turns)}: Enter replaces it, Ctrl-C keeps it."
    return Reply(chat, text, draft=draft, is_edit=True)


def history_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return the conversation, or its last turns."""
    if rest and not (rest.isdecimal() and int(rest[:9])):
        raise UsageError(f"/history needs a number of turns from 1, not {rest!r}.")
    lines = list(history(chat.conversation, last=int(rest[:9]) if rest else None))
    return Reply(chat, "\n".join(lines) or "There is no turn yet.")


def tokens_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return how much of the context is used."""
    if not chat.conversation.turns:
        return Reply(chat, f"No turn yet; the context has room for {env.context} tokens.")
    ids = _context_ids(chat, env)
    room = max(0, env.context - len(ids))
    return Reply(chat, f"{len(ids)} of {env.context} tokens are used, {room} are left.")


def prompt_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return the conversation as passed to the model."""
    if not chat.conversation.turns:
        return Reply(chat, "No turn yet, so there is no prompt.")
    return Reply(chat, env.tokenizer.decode(_context_ids(chat, env), skip_special=False))


def _context_ids(chat: Chat, env: CommandContext) -> tuple[int, ...]:
    """Return the token ids of the conversation so far, as passed to the model."""
    return prompt_ids(
        chat.conversation,
        env.tokenizer,
        is_raw=chat.settings["raw"],
        context=2**63,
        instructions=chat.job.instructions,
    )


def clear_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Remove all turns."""
    return Reply(chat.with_conversation(replace(chat.conversation, turns=())), "The conversation is empty.")


def stats_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return the tokens and the speed of each answer."""
    rows: list[tuple[str, ...]] = [("answer", "prompt", "kept", "read", "output", "tok/s", "end")]
    for number, end in enumerate(env.answers, start=1):
        speed = (end.completion_tokens - 1) / end.timings.decode if end.timings.decode > 0 else 0.0
        counts = (end.prompt_tokens, end.cached_tokens, end.prompt_tokens - end.cached_tokens)
        shown = f"{speed:.1f}" if speed else "-"
        rows.append((str(number), *map(str, counts), str(end.completion_tokens), shown, end.reason))
    return Reply(chat, "\n".join("  ".join(f"{cell:>6}" for cell in row) for row in rows))


def why_command(chat: Chat, rest: str, env: CommandContext) -> Reply:
    """Return the effect of each stage on the tokens of the last answer, or on one of them."""
    position = whole(rest)
    if rest and position is None:
        raise UsageError(f"/why needs the number of a token, from 0 on, not {rest[:60]!r}.")
    return Reply(chat, env.explain(chat, position).rstrip("\n"))
