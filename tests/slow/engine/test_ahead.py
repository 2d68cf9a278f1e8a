"""Steps that the device runs ahead of the host, and tokens that are taken back."""

import json
import random
from dataclasses import replace
from itertools import cycle

import torch

from gencli.core.events import Token
from gencli.core.request import Guidance, Stops
from gencli.models.other_runners import FakeRunner
from gencli.runtime.model_loading import ModelChoice, load
from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.rng import derive
from processors.rows import Rows
from processors.sampler import Sampler
from processors.stages.grammar_stage import GrammarParams
from tests.engine.ahead_cases import KINDS, PLAIN, play, random_script
from tests.engine.harness import TOKENIZER, engine, events_of, request, texts
from tests.engine.test_ahead import FREE, LETTERS, READ, SEEDS, WORDS, asked, both, options, run, text
from tests.engine.test_guidance import Remembering
from tests.sham import CUDA, sham_device
from tests.speculative.cases import WIDTH


def check_seed(seed):
    rng = random.Random(seed)
    both(random_script(rng, 24, kinds=KINDS if seed % 2 else PLAIN), **options(rng))


def test_random_requests_have_the_same_events_step_by_step():
    for seed in range(2):
        check_seed(seed)


def check_on_a_model(seed, size=9):
    rng, runs = random.Random(seed), []
    script, chosen = random_script(rng, size, kinds=PLAIN), options(rng)
    for is_on in (False, True):
        runner = load(ModelChoice("tiny", dtype="float32")).runner
        runs.append(play(script, runner=runner, run_ahead=is_on, **chosen))
    assert runs[0][0] == runs[1][0], seed
    assert runs[1][1].ahead.num_used, seed


def test_a_model_with_keys_and_values_gives_the_same_events():
    check_on_a_model(0, size=5)


def check_waits(seed, size=12):
    rng = random.Random(seed)
    script, chosen = random_script(rng, size, kinds=PLAIN), options(rng)
    here, _ = play(script, run_ahead=False, **chosen)
    with sham_device() as seen:
        there, _ = play(script, runner=FakeRunner(WIDTH, device=CUDA), **chosen)
    assert there == here, seed
    assert seen.waits[READ] == seen.waits.total() <= len(there), seed


def test_on_a_device_no_step_waits_more_than_once():
    check_waits(0, size=6)


class Watched(FakeRunner):
    """Notes how often the host had waited when a pass was launched ahead, and when a step ran plainly."""

    def __init__(self, seen):
        super().__init__(device=CUDA)
        self.seen, self.ahead, self.plain = seen, [], []

    def forward(self, plan):
        self.plain.append(self.seen.waits.total())
        return super().forward(plan)

    def forward_ahead(self, plan, ids):
        self.ahead.append(self.seen.waits.total())
        return super().forward_ahead(plan, ids)


def launches(steps, **options):
    with sham_device() as seen:
        on = engine(runner=FakeRunner(device=CUDA), **options)
        for key in "abc":
            on.submit(request(key, chain="ignore_eos=true | top_p=0.9"))
        for _ in range(3):
            on.step()
        seen.clear()
        for _ in range(steps):
            on.step()
        return sum(seen.launches.values())


def test_the_next_pass_is_launched_before_the_host_waits_for_the_last_draw_and_launches_no_more():
    rows = [request(key, max_tokens=12, chain="ignore_eos=true") for key in "abc"]
    with sham_device() as seen:
        runner = Watched(seen)
        assert texts(rows, runner=runner) == texts(rows)
    assert (runner.plain, runner.ahead) == ([0], [*range(11)])
    assert dict(seen.waits) == {READ: 12}
    assert launches(5) == launches(5, run_ahead=False)


BANNED = (("ab", "ec"), ("abc", "bcd", "e f", "dad"), ("fa", "fab", "aa"), ("a",))


def reference(one, texts):
    """The text of a loop that goes back where a text is complete, one token at a time, but not behind what
    no text could begin in any more.
    """
    model, output, bans, released = Remembering().table, [], {}, 0
    pipeline, sampler = Pipeline(Env(258, TOKENIZER)), Sampler()
    while len(output) < one.limits.max_tokens:
        history, seen = History(), [*one.prompt_ids, *output]
        history.admit(0, one.prompt_ids, seed=one.seed - (one.seed >> 63 << 64))
        history.append([0], [output])
        pipeline.admit(0, Chain.parse(LETTERS), Admission())
        sampler.admit(0, "gumbel")
        logits = model[seen[-1]] + model[sum((i + 1) * t for i, t in enumerate(seen)) % 258]
        logits[list(bans.get(len(output), ()))] = -torch.inf
        rows = Rows.build(history, [0])
        output.append(int(sampler(pipeline(logits[None], rows), rows)[0]))
        data = bytes(output)
        if length := max((len(text) for text in texts if data.endswith(text.encode())), default=0):
            place = max(len(output) - length, released)
            bans.setdefault(place, set()).add(output[place])
            bans = {at: ids for at, ids in bans.items() if at <= place}
            del output[place:]
        else:
            begun = [n for text in texts for n in range(len(text)) if data.endswith(text[:n].encode())]
            released = max(released, len(output) - max(begun))
    return bytes(output).decode()


def plain(one):
    """The request with the seed of its only sample."""
    return replace(one, seed=derive(one.seed, 0))


def test_the_text_is_that_of_a_plain_loop():
    for banned, seed in zip(BANNED, cycle(SEEDS), strict=False):
        one = asked(banned, seed=seed)
        found = text(one)
        assert found == reference(plain(one), banned), (banned, seed)
        assert not any(word in found for word in banned), (banned, seed)
        assert len(found) == 60, (banned, seed)


def test_preempted_texts_are_the_same_and_guided_ones_go_back_in_both_lanes():
    many = [asked(WORDS, seed=seed) for seed in SEEDS]
    ends = run(many, runner=Remembering(memory_lanes=2), max_batch=4)
    assert {key: end.text for (key, _), end in ends.items()} == {one.id: text(one) for one in many}
    one = asked(WORDS, guidance=Guidance(1.7, tuple(b"cold ")))
    found = text(one)
    assert found != text(replace(one, chain=FREE))
    assert not any(banned in found for banned in WORDS)
    beside = [asked(("ab",), seed=9), request("x", max_tokens=50)]
    assert run([one, *beside], max_batch=2)[one.id, 0].text == found


def test_a_document_goes_back_with_its_text():
    words = [a + b + c for a in "abcd" for b in "abcd" for c in ("", "e", "ef")]
    grammar = GrammarParams(json.dumps(words), kind="choice", backend="trie")
    for seed in range(12):
        one = asked(("ab", "bc", "de", "ca"), seed=seed, grammar=grammar)
        end = run([one])[one.id, 0]
        assert end.text in words
        assert not any(banned in end.text for banned in ("ab", "bc", "de", "ca"))
        assert (end.document, text(replace(one, jump="off"))) == ("over", end.text)


def test_a_stop_inside_of_held_text_ends_it():
    for seed in SEEDS:
        one = asked(("cdef", "ab"), seed=seed)
        full = text(one)
        stopped = run([replace(one, stops=Stops(strings=("cd",)))])[one.id, 0]
        reason = "stop" if "cd" in full else "length"
        assert (stopped.text, stopped.reason) == (full.partition("cd")[0], reason), seed


def test_a_text_may_begin_in_the_prompt_and_case_may_not_matter():
    made = 'allowed=[65,66,97,98,32] | ban:texts=["aB","bb"],ignore_case=true'
    for seed in SEEDS:
        begun = text(asked(("xyza", "zb", "c", "d"), seed=seed, prompt="xyz"))
        assert not begun.startswith(("a", "b", "c", "d")), seed
        for chain in (made, f"{made},rewind=true"):
            found = text(request("x", seed=seed, max_tokens=40, chain=chain)).lower()
            assert (len(found), "ab" in found, "bb" in found) == (40, False, False), (seed, chain)


def test_log_probabilities_are_those_of_the_tokens_that_stay():
    one = asked(("ab", "ec", "dad"), logprobs=1)
    events = [event for event in events_of([one], runner=Remembering()) if isinstance(event, Token)]
    entries = [entry.chosen.id for event in events for entry in event.logprobs]
    assert entries == [token for event in events for token in event.ids]
    assert bytes(entries).decode() == text(replace(one, logprobs=None))
