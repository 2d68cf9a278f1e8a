"""Plugins and drafts: a drafter changes no text, and a stage that fails with drafts runs without."""

from dataclasses import replace

import pytest

from gencli.errors import PluginError
from gencli.plugins.plugin_registry import DraftGuard, draft_fault, make_registry
from processors.catalog import BUILTIN
from processors.chain import Chain
from processors.registry import Registry
from tests.engine.harness import Scripted, engine, generate, request
from tests.plugins.conftest import ONLY
from tests.processors.testing.test_broken_stages import IgnoresDrafts, Shift

HF = "transformers:RepetitionPenaltyLogitsProcessor"


def registry_of(stage):
    registry = Registry(BUILTIN)
    registry.register(stage)
    return registry


def generated(registry, chain, *, drafted):
    """Text, drafts proposed, notices; the drafter knows the text."""
    one = replace(request("the cat sat", max_tokens=20), chain=Chain.parse(chain, registry))
    text = generate([one], on=engine(registry=registry))[one.id, 0].text
    if not drafted:
        return text, 0, []
    drafter = Scripted({one.prompt_ids: tuple(text.encode())})
    on = engine(registry=registry, drafter=drafter)
    end = generate([one], on=on)[one.id, 0]
    return end.text, drafter.proposed, on.notices


# Ids that one byte says, so that the drafter's script is the text.
LETTERS = f"allowed={list(range(97, 123))}"


def test_a_sound_stage_takes_drafts():
    for chain in [f"shift=3 | {LETTERS}", f"shift=3 | {LETTERS} | top_k=5"]:
        registry = registry_of(Shift)
        plain, _, _ = generated(registry, chain, drafted=False)
        text, proposed, notices = generated(registry, chain, drafted=True)
        assert text == plain, chain
        assert proposed > 0, chain
        assert notices == [], chain

    registry = make_registry([HF])
    chain = f"repetition_penalty=1.7 | {LETTERS}"
    plain, _, _ = generated(registry, chain, drafted=False)
    text, proposed, notices = generated(registry, chain, drafted=True)
    assert (text, notices) == (plain, [])
    assert proposed > 0


def test_a_stage_that_fails_with_drafts_runs_without_and_is_reported():
    registry = registry_of(IgnoresDrafts)
    plain, _, _ = generated(registry, f"shift=3 | {LETTERS}", drafted=False)
    text, proposed, notices = generated(registry, f"shift=3 | {LETTERS}", drafted=True)
    assert text == plain
    assert proposed == 0
    assert len(notices) == 1
    assert "shift runs without drafts" in notices[0]


def test_its_neighbours_keep_their_drafts():
    registry = registry_of(IgnoresDrafts)
    drafter = Scripted({})
    on = engine(registry=registry, drafter=drafter)
    chains = {"a": f"shift=3 | {LETTERS}", "b": LETTERS}
    requests = [replace(request("hi", key=k), chain=Chain.parse(c, registry)) for k, c in chains.items()]
    ends = generate(requests, on=engine(registry=registry))
    drafter.answers = {requests[1].prompt_ids: tuple(ends["b", 0].text.encode())}
    assert {k: e.text for k, e in generate(requests, on=on).items()} == {k: e.text for k, e in ends.items()}
    assert drafter.proposed > 0


def test_one_that_counts_its_calls_does_not(plugin):
    code = """
class Count:
    def __init__(self):
        self.calls = 0

    def __call__(self, ids, logits):
        self.calls += 1
        logits[:, 97 + self.calls % 26] += 50
        return logits
"""
    registry = make_registry([f"{plugin(code)}:Count"])
    plain, _, _ = generated(registry, "count", drafted=False)
    text, proposed, notices = generated(registry, "count", drafted=True)
    assert (text, proposed) == (plain, 0)
    assert "count runs without drafts" in notices[0]
    assert plain.startswith("bcd")


def test_a_fault_is_reported_once_and_found_at_other_values_too(plugin):
    registry = registry_of(IgnoresDrafts)
    guard = DraftGuard(registry)
    chains = [Chain.parse(text, registry) for text in ("shift=1 | top_k=3", "shift=1", "shift=2")]
    assert [name for chain in chains for name, _ in guard.faults(chain)] == ["shift"]

    # A fault that shows at other values is the stage's fault all the same.
    class OnlyBelowOne(IgnoresDrafts):
        def shifts(self, rows):
            shifts = super().shifts(rows)
            return shifts.where(self.columns.gather("shift", rows) < 1, self.columns.gather("shift", rows))

    registry = registry_of(OnlyBelowOne)
    assert draft_fault(registry, "shift", registry.spec("shift").params(3.0))
    sound = make_registry([str(plugin(ONLY))])
    assert draft_fault(sound, "only", sound.spec("only").params(3)) == ""


DRAFTER = """
from gencli.speculative.drafter import Drafter


class Same(Drafter):
    name = "same"

    def propose(self, asks):
        return [[ask.tokens[-1]] * ask.most for ask in asks]
"""
FLAGS = ("--model", "fake", "--allow-ids", "97,98", "--seed", "1", "--max-tokens", "40", "abab")


def test_a_drafter_from_a_file_is_named_with_draft(plugin, gencli):
    path = plugin(DRAFTER)
    plain = gencli("run", *FLAGS)
    found = gencli("run", *FLAGS, "--plugin", path, "--draft", "same", "--draft-tokens", "2")
    assert (found.code, found.out) == (0, plain.out)
    assert "Drafts (same): " in found.err
    assert "tokens a forward" in found.err

    found = gencli("run", *FLAGS, "--plugin", plugin(DRAFTER))
    assert "The drafter same of" in found.err
    assert "add --draft same" in found.err


def test_what_is_no_drafter_is_refused(plugin, tmp_path):
    for old, new, said in [
        ('name = "same"', "", "has the name ''"),
        ('"same"', '"ngram"', "a name that gencli does not use"),
        ("def propose", "def suggest", "has no propose"),
        ("def propose", "def __init__(self, size): pass\n\n    def propose", "a class without arguments"),
    ]:
        with pytest.raises(PluginError, match=said):
            make_registry([str(plugin(DRAFTER.replace(old, new)))])

    path = plugin(DRAFTER.replace('name = "same"', 'name = "same"\n    passes = True'))
    with pytest.raises(PluginError, match="has passes, which is now is_autoregressive"):
        make_registry([str(path)])

    other = tmp_path / "other.py"
    other.write_text(DRAFTER)
    with pytest.raises(PluginError, match="Two drafters have the name 'same'"):
        make_registry([str(plugin(DRAFTER)), str(other)])


def test_one_that_cannot_be_made_exits_with_4(plugin, gencli):
    path = plugin(DRAFTER + "    def __init__(self):\n        raise SystemExit(0)\n")
    found = gencli("run", *FLAGS, "--plugin", path, "--draft", "same")
    assert found.code == 4
    assert "The drafter same is wrong: __init__ raised SystemExit('0')" in found.err


def test_a_tree_has_its_parents_before_their_children(plugin, gencli):
    for parents, is_right in (("(-1, 0, -1)", True), ("(-1, 1, -1)", False), ("(-1, 0)", False)):
        body = f"return [DraftTree((97, 98, 98), {parents}) for ask in asks]"
        code = "from gencli.speculative.drafter import DraftTree\n" + DRAFTER.replace(
            "return [[ask.tokens[-1]] * ask.most for ask in asks]", body
        )
        found = gencli("run", *FLAGS, "--plugin", plugin(code), "--draft", "same")
        assert found.code == 0
        assert ("propose returned a DraftTree with wrong parents" in found.err) != is_right, parents


def test_drafts_that_are_drawn_have_a_distribution(plugin, gencli):
    for logits in ["torch.zeros(3)", "torch.full((258,), torch.nan)", "torch.zeros(258).double()", "None"]:
        body = f"return [Drawn((97,), ({logits},), (0.5,)) for ask in asks]"
        code = "import torch\nfrom gencli.speculative.drafter import Drawn\n" + DRAFTER.replace(
            "return [[ask.tokens[-1]] * ask.most for ask in asks]", body
        )
        found = gencli("run", *FLAGS, "--plugin", plugin(code), "--draft", "same", "--verify", "rejection")
        assert found.code == 0, logits
        assert "propose returned Drawn with wrong logits" in found.err, logits
