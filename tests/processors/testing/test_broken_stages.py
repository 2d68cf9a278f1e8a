"""The contract kit notices each kind of fault, by the check that is meant for it and by no other."""

from dataclasses import dataclass
from typing import Literal

import torch

from processors.base import Processor
from processors.catalog import Phase
from processors.params import Params, param
from processors.testing import CHECKS, Subject, check_stage, examples, run_check


@dataclass(frozen=True, slots=True)
class ShiftParams(Params):
    """Lower every logit but the first."""

    shift: float = param(0.0, "Subtracted from all logits but the first.")


class Shift(Processor[ShiftParams]):
    """A sound stage; each broken one below differs from it in one respect."""

    name = "shift"
    phase = Phase.ADJUST
    Params = ShiftParams

    def shifts(self, rows):
        return self.columns.gather("shift", rows)

    def apply(self, logits, rows):
        logits[:, 1:] -= self.shifts(rows).float()[:, None]
        return logits


@dataclass(frozen=True, slots=True)
class OnByDefaultParams(Params):
    shift: float = param(1.0, "Subtracted from all logits but the first.")

    def is_off(self):
        return self.shift == 0.0


class RunsByDefault(Shift):
    Params = OnByDefaultParams


class AssumesSortedRows(Shift):
    def shifts(self, rows):
        return super().shifts(rows)[rows.slots.argsort()]


class TakesTheLargestOfTheBatch(Shift):
    def shifts(self, rows):
        return super().shifts(rows).amax().expand(len(rows))


class IgnoresDrafts(Shift):
    def shifts(self, rows):
        committed = rows.history.lengths[rows.slots] - rows.history.prompt_lengths[rows.slots]
        return super().shifts(rows) * (committed + 1)


class CountsItsCalls(Shift):
    calls = 0

    def shifts(self, rows):
        self.calls += 1
        return super().shifts(rows) * self.calls


class RevivesMasked(Shift):
    def apply(self, logits, rows):
        return super().apply(logits, rows).clamp(min=-1e9)


class DividesByTheSpread(Shift):
    def apply(self, logits, rows):
        logits = super().apply(logits, rows)
        finite = logits.masked_fill(logits == -torch.inf, 0)
        return logits / (finite.amax(1, keepdim=True) - finite[:, :1]).clamp(min=0)


class KeepsOnlyAboveTheMean(Shift):
    def apply(self, logits, rows):
        finite = logits.masked_fill(logits == -torch.inf, 0)
        return logits.masked_fill(logits <= finite.mean(1, keepdim=True), -torch.inf)


class HeldInADict(Shift):
    """Sound: values by slot in a dict, with every event handled."""

    def __init__(self, env):
        super().__init__(env)
        self.held = {}

    def admit(self, slot, params, request):
        self.held[slot] = [params.shift]

    def commit(self, slot, tokens):
        self.held[slot] += [1.0] * len(tokens)

    def release(self, slot):
        self.held.pop(slot, None)

    def fork(self, source, target):
        self.held[target] = list(self.held[source])

    def shifts(self, rows):
        return torch.tensor([sum(self.held[slot]) for slot in rows.host_slots]) + rows.offsets


class AdmitsOnce(HeldInADict):
    def admit(self, slot, params, request):
        self.held.setdefault(slot, [params.shift])

    def commit(self, slot, tokens):
        pass

    def shifts(self, rows):
        return torch.tensor([sum(self.held[slot]) for slot in rows.host_slots])


class ReleaseMovesTheLast(HeldInADict):
    def release(self, slot):
        last = self.held.pop(max(self.held))
        if self.held:
            self.held[slot] = last


class SharesAfterFork(HeldInADict):
    def fork(self, source, target):
        self.held[target] = self.held[source]


class OffByOne(Shift):
    def apply(self, logits, rows):
        return super().apply(logits, rows).mul_(1 + 1e-5)


def shift_twin(logits, params, view):
    return [logits[0], *(logit - params.shift for logit in logits[1:])]


def failing(stage, twin=None):
    params = (stage.Params(0.5), stage.Params(2.0), stage.Params(-1.0))
    subject = Subject.of(stage, params, twin=twin)
    return {result.name for result in (run_check(check, subject) for check in CHECKS) if not result.passed}


def test_a_sound_stage_passes():
    for stage in [Shift, HeldInADict]:
        assert failing(stage) == set(), stage


def test_a_fault_is_caught_by_the_check_meant_for_it():
    for stage, check in [
        (RunsByDefault, "defaults_never_run"),
        (AssumesSortedRows, "rows_commute"),
        (TakesTheLargestOfTheBatch, "batch_equals_alone"),
        (IgnoresDrafts, "drafts_equal_steps"),
        (CountsItsCalls, "apply_is_pure"),
        (RevivesMasked, "masked_stays_masked"),
        (DividesByTheSpread, "leaves_a_choice"),
        (KeepsOnlyAboveTheMean, "leaves_a_choice"),
        (AdmitsOnce, "admit_overwrites"),
        (ReleaseMovesTheLast, "release_frees"),
        (SharesAfterFork, "fork_is_independent"),
    ]:
        assert failing(stage) == {check}, stage


def test_a_wrong_number_is_caught_by_the_twin():
    assert failing(Shift, shift_twin) == set()
    assert failing(OffByOne, shift_twin) == {"equals_twin"}


@dataclass(frozen=True, slots=True)
class AllKindsParams(Params):
    """A field of every kind."""

    on: bool = param(False, "A switch.")
    level: float = param(0.5, "A number.", gt=0, lt=1)
    mode: Literal["soft", "hard"] = param("soft", "A choice.")
    ids: tuple[int, ...] = param((), "Ids.")
    pairs: tuple[tuple[int | str, float], ...] = param((), "Pairs.")
    window: int | None = param(None, "A window.", ge=2)


def test_examples_are_guessed_from_fields_and_bounds():
    found = examples(AllKindsParams)
    assert all(params.on for params in found)
    assert {params.mode for params in found} == {"soft", "hard"}
    assert {params.window for params in found} == {None, 3, 10, 200}
    assert {params.level for params in found} == {0.5, 0.05}
    assert any(params.pairs == ((1, 0.5),) for params in found)


def test_check_stage_reports_every_check_by_name():
    results = check_stage(RevivesMasked)
    assert [result.name for result in results] == [check.__name__ for check in CHECKS]
    (failed,) = [result for result in results if not result.passed]
    assert "masked tokens came back" in failed.detail


def test_what_a_stage_raises_is_a_failure_with_its_name():
    class Raises(Shift):
        def apply(self, logits, rows):
            raise KeyError("lost")

    assert any("KeyError: 'lost'" in result.detail for result in check_stage(Raises))
