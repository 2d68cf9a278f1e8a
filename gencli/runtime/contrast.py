"""Load the contrast model of a run (the amateur): a weaker model with the same vocabulary."""

from __future__ import annotations

from dataclasses import replace

from gencli.config.options.guidance import NO_AMATEUR
from gencli.errors import ModelError
from gencli.models.backend import ONE_DEVICE
from gencli.models.files.model_card import first_difference
from gencli.models.model_runner import ModelRunner
from gencli.runtime.models import Loaded, ModelChoice, load

__all__ = ["load_amateurs"]


def load_amateurs(name: str, expert: Loaded, choice: ModelChoice) -> dict[str, ModelRunner]:
    """Return {name: runner} of the amateur; {} for NO_AMATEUR.

    The amateur is loaded with the load options of the expert, `choice`. Raises ModelError for a model that
    cannot be contrasted with the expert.
    """
    if name == NO_AMATEUR:
        return {}
    amateur = load(replace(choice, name=name, spread=ONE_DEVICE))
    names = f"{name} cannot be the amateur of {choice.name}"
    if (found := first_difference(expert.tokenizer, amateur.tokenizer)) is not None:
        token, here, there = found
        raise ModelError(
            f"{names}: their vocabularies differ. Token {token} is {there!r} to {name} and {here!r} to "
            f"{choice.name}.",
            hint="A contrast needs two models of one vocabulary.",
        )
    known, width = expert.tokenizer.vocab_size, amateur.runner.spec.vocab_size
    if width < known:
        raise ModelError(f"{names}: it knows {width} tokens, and {choice.name} has {known}.")
    if expert.runner.spec.can_rollback and not amateur.runner.spec.can_rollback:
        raise ModelError(
            f"{names}: its layers keep a running state, so it cannot forget drafts that are rejected.",
            hint="Take an attention model.",
        )
    return {name: amateur.runner}
