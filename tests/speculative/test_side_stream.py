"""A draft model in a stream of its own: the target waits for its drafts, not for its prefill."""

from contextlib import contextmanager

from gencli.models.other_runners import FakeRunner, SideStreamRunner, run_on_side_stream
from gencli.speculative.draft_model import ModelDrafter
from tests.engine.harness import request
from tests.speculative.cases import WIDTH, drafting, outcomes


class Noted(FakeRunner):
    """Records its calls."""

    def __init__(self, name, notes):
        super().__init__(WIDTH, context=4096)
        self.name, self.notes = name, notes

    def _note(self, what):
        self.notes.append((self.name, what))

    def forward(self, plan):
        self._note("choose" if plan.num_rows else "read")
        return super().forward(plan)

    def truncate(self, lane, length):
        self._note("truncate")
        super().truncate(lane, length)

    def fork(self, source, target):
        self._note("fork")
        super().fork(source, target)

    def release(self, lane):
        self._note("release")
        super().release(lane)

    def free_cache(self):
        self._note("free_cache")
        super().free_cache()


class NotedQueue:
    """A stream that runs each call at once, and records it."""

    def __init__(self, notes):
        self.notes = notes

    @contextmanager
    def begin(self):
        self.notes.append(("queue", "begin"))
        yield
        self.notes.append(("queue", "end"))

    def publish(self, result):
        assert len(result)
        self.notes.append(("queue", "publish"))


def run():
    """Run four samples of a long prompt beside a text with drafts; the recorded calls in order."""
    notes = []
    long = request("a long text " * 60, key="long", chain="ignore_eos=true", n=3)
    requests = drafting([request("abc", key="short", chain="ignore_eos=true"), long], "", 4)
    drafter = ModelDrafter(SideStreamRunner(Noted("draft", notes), NotedQueue(notes)))
    found, stood = outcomes(requests, drafter=drafter, runner=Noted("target", notes), max_batch=4)
    assert stood
    assert found == outcomes(requests, runner=FakeRunner(WIDTH, context=4096), max_batch=4)[0]
    drafter.trim()
    return notes


def test_all_work_on_the_lanes_of_the_draft_is_in_its_queue_and_only_logits_are_waited_for():
    notes, is_open, seen = run(), False, set()
    for name, what in notes:
        if name == "queue":
            is_open = {"begin": True, "end": False}.get(what, is_open)
        else:
            assert is_open == (name == "draft"), what
            seen |= {what} if is_open else set()
    assert seen == {"choose", "read", "truncate", "fork", "release", "free_cache"}

    def behind(what, notes, distance):
        """The calls after those in which the draft model did this."""
        return {
            after for note, after in zip(notes, notes[distance:], strict=False) if note == ("draft", what)
        }

    assert behind("choose", notes, 2) == {("queue", "publish")}
    assert ("queue", "publish") not in behind("read", notes, 2)
    calls = [note for note in notes if note[0] != "queue"]
    assert behind("read", calls, 1) <= {("target", what) for what in ("choose", "read", "fork", "truncate")}


def test_a_device_without_streams_keeps_the_runner():
    runner = FakeRunner()
    assert run_on_side_stream(runner) is runner
