"""Explanations of a chat's last answer, which is drawn again for them."""

from __future__ import annotations

from dataclasses import replace

from gencli.cli.token_views import one_token, whole_text
from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import GenerationError, UsageError
from gencli.explain.token_levels import Record
from gencli.explain.token_record import records
from gencli.text.tokenizer import Tokenizer
from processors.row_view import RowView

_COUNT = 5  # ids in the lists of a record


class LastAnswer:
    """An answer, and the records of its tokens once they were requested.

    Explaining costs nothing while the answer is drawn. Draws are functions of seed and position, so the same
    request gives the same tokens again; its prompt is still in the KV cache.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self.text = ""
        self._request, self._tokenizer = request, tokenizer
        self._ids: list[int] = []
        self._records: list[Record] = []

    def add(self, event: Event) -> None:
        """Collect the tokens of an event."""
        if isinstance(event, Token):
            self._ids += event.ids
            self.text += event.text

    def page(self, engine: Engine, position: int | None) -> str:
        """Return the page of the whole answer, or of the token at a position from 0 on.

        Raises UsageError for a missing position, GenerationError if the answer cannot be drawn again.
        """
        if position is not None and position >= len(self._ids):
            raise UsageError(f"The answer has {len(self._ids)} tokens, from 0 on, but no token {position}.")
        if not self._records:
            self._records = records(self._explained(engine), self._tokenizer, run="chat", sample=0)
        if position is None:
            return whole_text(self._records)
        before = "".join(record["text"] for record in self._records[:position])
        if position >= len(self._records):
            raise UsageError(f"Token {position} completes the document; the model did not choose it.")
        return one_token(self._records[position], before=before, of=len(self._records))

    def _explained(self, engine: Engine) -> list[RowView]:
        """Draw the answer again up to its last token."""
        limits = replace(self._request.limits, max_time=None)
        again = replace(
            self._request, id="why", trace=_COUNT, logprobs=None, finish_open=False, limits=limits
        )
        engine.submit(again)
        ids, views = list[int](), list[RowView]()
        for event in engine.run():
            if isinstance(event, Error):
                raise GenerationError(event.message)
            if isinstance(event, Token):
                ids += event.ids
                views += event.views
                if len(ids) >= len(self._ids):
                    engine.cancel(again.id)
            elif isinstance(event, Finish) and event.reason == "interrupted" and len(ids) < len(self._ids):
                raise GenerationError("The answer is not explained: it was interrupted.")
        engine.notices.clear()  # the notices of the first draw
        views = views[: len(self._ids)]
        if [view.token for view in views] != self._ids[: len(views)]:
            raise GenerationError(
                "The answer came out different when it was drawn again, so it is not explained.",
                hint="With a `verify` other than match, drafts depend on the earlier texts.",
            )
        return views
