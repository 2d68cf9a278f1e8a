"""The models in the memory of a batch: its own model, a draft model and the amateur of a contrast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gencli.batch.prepare import Batch
from gencli.config.named_models import is_draft_model
from gencli.config.options.drafts import EARLY_EXIT
from gencli.config.options.guidance import NO_AMATEUR
from gencli.errors import UsageError
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import Card, Weights, read_card
from gencli.models.model_memory import Held

__all__ = ["models_of"]


def models_of(batch: Batch, card: Card) -> tuple[Held, ...]:
    """Return the models that the batch holds in memory; `card` describes its own model.

    Raises UsageError for a model that is not on this machine.
    """
    own = 2 if batch.jobs.are_guided else 1
    return Held("", card, own), *_amateurs(batch), *_drafts(batch, card)


def _amateurs(batch: Batch) -> Iterator[Held]:
    name = batch.settings["contrast"]
    if name != NO_AMATEUR:
        yield Held(name, _card("contrast", name), 1 if batch.jobs.are_contrasted else 0)


def _drafts(batch: Batch, card: Card) -> Iterator[Held]:
    """Yield the draft model, with one lane for each sample; early exit shares the weights of the model."""
    name = batch.settings["draft"]
    kind, _, count = name.partition(":")
    if kind == EARLY_EXIT:
        yield Held(name, _first_layers(card, int(count) if count.isdecimal() else None), 1)
    elif is_draft_model(name, batch.jobs.base.registry):
        yield Held(name, _card("draft", name), 1)


def _first_layers(card: Card, count: int | None) -> Card:
    total = card.layers or 1
    share = -(-total // 2) if count is None else min(count, total)
    values = card.kv_values and card.kv_values * share // total
    return replace(card, weights=Weights(stored=card.weights.stored), kv_values=values)


def _card(key: str, name: str) -> Card:
    folder = find_local(name)
    if folder is None:
        raise UsageError(f"`{key}` = {name}: {name} is not on this machine.")
    return read_card(folder)
