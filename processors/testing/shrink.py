"""Shrink the case of a failing check: fewer parameters, fewer texts, shorter texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from processors.testing.bench import Subject, Text
from processors.testing.checks import Check, run_check

__all__ = ["shrink"]

_TRIES = 200


def shrink(check: Check, subject: Subject) -> Subject:
    """Return the subject, reduced step by step while the check fails with the same kind of exception."""
    kind = _failure(check, subject)
    tries = 0
    candidates = _smaller(subject)
    while tries < _TRIES and (candidate := next(candidates, None)) is not None:
        tries += 1
        if _failure(check, candidate) == kind:
            subject, candidates = candidate, _smaller(candidate)
    return subject


def _failure(check: Check, subject: Subject) -> str:
    """Return the kind of exception; "" if the check passed."""
    return run_check(check, subject).detail.partition(":")[0]


def _smaller(subject: Subject) -> Iterator[Subject]:
    """Yield all subjects one step smaller, the largest steps first."""
    if len(subject.params) > 1:
        yield from (replace(subject, params=(params,)) for params in subject.params)
        for i in range(len(subject.params)):
            yield replace(subject, params=subject.params[:i] + subject.params[i + 1 :])
    if len(subject.texts) > 1:
        yield from (replace(subject, texts=(text,)) for text in subject.texts)
        for i in range(len(subject.texts)):
            yield replace(subject, texts=subject.texts[:i] + subject.texts[i + 1 :])
    for i, text in enumerate(subject.texts):
        for shorter in _shorter(text):
            yield replace(subject, texts=(*subject.texts[:i], shorter, *subject.texts[i + 1 :]))


def _shorter(text: Text) -> Iterator[Text]:
    for name in ("prompt", "output", "drafts", "stop_ids"):
        ids = getattr(text, name)
        if ids:
            yield from (replace(text, **{name: cut}) for cut in ((), ids[: len(ids) // 2], ids[1:], ids[:-1]))
