"""Code of others as a stage: classes and callables that are sound, and every way to be broken."""

from dataclasses import replace
from typing import Literal

import pytest
import torch
from transformers.generation import logits_process

from gencli.errors import PluginError
from gencli.plugins.plugin_loading import adapt, stage_name
from gencli.plugins.plugin_registry import make_registry
from processors.catalog import Phase
from processors.chain import Chain
from processors.errors import ParamError
from processors.registry import Registry
from processors.testing import Bench, Subject, random_logits, toy_env
from processors.testing.checks import TEXTS
from tests.engine.harness import engine, request, texts
from tests.plugins.conftest import ONLY, STAGE

HF = "transformers:RepetitionPenaltyLogitsProcessor"
CALLABLES = """
import torch

def only(ids, logits, token: int = 97):
    return logits.masked_fill(torch.arange(logits.shape[1]) != token, -torch.inf)

class Climb:
    '''One id further with each call.'''
    def __init__(self, start):
        self.at = start

    def __call__(self, ids, logits):
        self.at += 1
        return only(ids, logits, self.at)

def last(ids, logits):
    return only(ids, logits, int(ids[0, -1]))

def shape(ids, logits):
    return logits[0]

def alone(logits):
    return logits
"""


def adapted(target, name="mine"):
    registry = Registry()
    registry.register(adapt(target, name, "here"))
    return registry


def asked(key, chain, registry, **rest):
    return replace(request("hello hello", key=key, **rest), chain=Chain.parse(chain, registry))


def test_each_row_is_what_transformers_makes_of_it():
    for name, values in [
        ("NoRepeatNGramLogitsProcessor", {"ngram_size": 2}),
        ("NoBadWordsLogitsProcessor", {"bad_words_ids": [[7], [3, 5]]}),
        ("SequenceBiasLogitsProcessor", {"sequence_bias": [[[7], 2.5]]}),
        (
            "ExponentialDecayLengthPenalty",
            {"exponential_decay_length_penalty": [1, 1.5], "eos_token_id": 1, "input_ids_seq_length": 2},
        ),
        ("TypicalLogitsWarper", {"mass": 0.4}),
        ("EpsilonLogitsWarper", {"epsilon": 0.01}),
        ("EtaLogitsWarper", {"epsilon": 0.01}),
        ("TopHLogitsWarper", {"top_h": 0.4}),
        ("LogitNormalization", {}),
    ]:
        target = getattr(logits_process, name)
        stage = adapt(target, "mine", "here")
        params = stage.Params.from_mapping(values)
        bench = Bench(Subject(stage, (params,)))
        texts = [text for text in TEXTS if text.prompt]
        for slot, text in enumerate(texts):
            bench.admit(slot, params, text)
        logits = random_logits(2 * len(texts), toy_env())
        out = bench.apply(logits, range(len(texts)), [text.drafts[:1] for text in texts])
        for row, text in enumerate(text for text in texts for _ in range(2)):
            ids = torch.tensor([[*text.prompt, *text.output, *text.drafts[: row % 2]]])
            expected = target(**values)(ids, logits[row : row + 1].clone())
            assert torch.equal(out[row : row + 1], expected), name


def test_a_function_of_a_file_is_a_stage_that_its_name_switches_on(run, plugin):
    done = run("--plugin", f"{plugin(CALLABLES)}:only", "--stage", "only=100", "--max-tokens", 3, "hi")
    assert done.out == "ddd\n"
    assert done.err.count("called once for each row") == 1

    path = plugin(CALLABLES)
    assert run("--plugin", f"{path}:only", "--stage", "only", "--max-tokens", 3, "hi").out == "aaa\n"
    assert "is not on" in run("--plugin", f"{path}:only", "--max-tokens", 3, "hi").err

    assert (
        run("--plugin", f"{plugin(CALLABLES)}:last", "--stage", "last", "--max-tokens", 3, "xyc").out
        == "ccc\n"
    )


def test_what_it_remembers_belongs_to_one_request(plugin):
    registry = make_registry([f"{plugin(CALLABLES)}:Climb"])
    requests = [
        asked("a", "climb=96", registry, max_tokens=3),
        asked("b", "climb=106", registry, max_tokens=3),
    ]
    found = texts(requests, on=engine(registry=registry))
    assert (found["a", 0], found["b", 0]) == ("abc", "klm")


def test_a_wrong_argument_or_result_is_said(run, plugin):
    for stage, message in [
        ("climb", "start is required: it has no default"),
        ("climb:statr=3", "Did you mean 'start'?"),
    ]:
        done = run("--plugin", f"{plugin(CALLABLES)}:Climb", "--stage", stage, "hi")
        assert done.code == 2, stage
        assert message in done.err, stage

    done = run("--plugin", HF, "--stage", "repetition_penalty=-1", "hi")
    assert done.code == 2
    assert "strictly positive" in done.err

    done = run("--plugin", f"{plugin(CALLABLES)}:shape", "--stage", "shape", "hi")
    assert done.code == 4
    assert "apply returned [258], [1, 258] expected" in done.err

    assert run("--plugin", f"{plugin(CALLABLES)}:alone", "--stage", "alone", "hi").code == 4


class Typed:
    def __init__(
        self,
        kind: Literal["soft", "hard"],
        ids: list[int],
        level: float = 0.5,
        words: list[list[str]] | None = None,
        model: torch.nn.Module | None = None,
        bare=3,
    ):
        self.given = (kind, ids, level, words, model, bare)

    def __call__(self, ids, logits):
        return logits


def test_arguments_have_the_types_and_defaults_of_the_constructor():
    registry = adapted(Typed)
    ((_, params),) = Chain.parse('mine:kind=hard,ids=[1,2],words=[["a"]]', registry)
    assert params.build().given == ("hard", [1, 2], 0.5, [["a"]], None, 3)
    for wrong in ("mine:kind=loud,ids=[]", "mine:kind=soft,ids=3", "mine:kind=soft,ids=[],level=x"):
        with pytest.raises(ParamError):
            Chain.parse(wrong, registry)

    registry = adapted(Typed)
    chain = Chain.parse("mine:kind=hard,ids=[1,2]", registry)
    assert Chain.parse(str(chain), registry) == chain
    assert Chain.from_list(chain.to_list(), registry) == chain
    off = registry.spec("mine").params()
    assert off.is_off()
    assert type(off)(**off.to_mapping()) == off

    class Guided:
        def __init__(self, model: torch.nn.Module):
            self.model = model

        def __call__(self, ids, logits):
            return logits

    with pytest.raises(PluginError, match="takes the argument model"):
        adapt(Guided, "guided", "here")


def test_the_name_is_the_class_without_what_it_is_and_a_warper_truncates():
    assert adapt(logits_process.EtaLogitsWarper, "eta_of_theirs", "here").phase is Phase.TRUNCATE
    assert make_registry([HF]).phase("repetition_penalty") is Phase.ADJUST

    for attribute, name in [
        ("RepetitionPenaltyLogitsProcessor", "repetition_penalty"),
        ("TopHLogitsWarper", "top_h"),
        ("NoBadWordsLogitsProcessor", "no_bad_words"),
        ("HFThing", "hf_thing"),
        ("my_function", "my_function"),
        ("LogitsProcessor", "logits_processor"),
    ]:
        assert stage_name(attribute) == name, attribute


class Counter:
    calls = 0

    def __call__(self, ids, logits):
        self.calls += 1
        return logits - self.calls


def test_a_fork_or_another_request_remembers_on_its_own():
    stage = adapt(Counter, "counter", "here")
    subject = Subject.of(stage)
    bench = Bench(subject)
    bench.admit(0, subject.params[0], TEXTS[0])
    logits = torch.zeros(1, subject.env.vocab_size)
    bench.apply(logits, [0])
    bench.fork(0, 5)
    assert [float(bench.apply(logits, [slot])[0, 0]) for slot in (5, 5, 0)] == [-2.0, -3.0, -2.0]

    stage = adapt(Counter(), "counter", "here")
    subject = Subject.of(stage)
    built = [subject.params[0].build() for _ in range(2)]
    built[0](torch.zeros(1, 1), torch.zeros(1, 3))
    assert built[1](torch.zeros(1, 1), torch.zeros(1, 3)).tolist() == [[-1.0, -1.0, -1.0]]


DECLARED = 'param(-1, "The one id that may be chosen; -1 is off.", ge=-1)'
APPLY = STAGE[STAGE.index("    def apply") :]
BROKEN = {
    "syntax": ("def", "SyntaxError"),
    "import": ("import no_such_module", "No module named 'no_such_module'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "nothing in it": ("x = 1", "defines no subclass of processors.Processor"),
    "no name": (ONLY.replace('name = "only"', ""), "Only has no name"),
    "bad name": (ONLY.replace('"only"', '"Only One"'), "Only has the name 'Only One'"),
    "no phase": (ONLY.replace("phase = Phase.CONSTRAIN", ""), "Only has no phase"),
    "bad phase": (ONLY.replace("Phase.CONSTRAIN", '"first"'), "Only has the phase 'first'"),
    "no params": (ONLY.replace("    Params = OnlyParams", ""), "Only has no Params"),
    "foreign params": (ONLY.replace("Params = OnlyParams", "Params = dict"), "Only has as Params dict"),
    "bare params": (ONLY.replace("Params = OnlyParams", "Params = Params"), "Only has Params Params without"),
    "undeclared": (ONLY.replace(DECLARED, "-1"), "the field OnlyParams.id without a declaration"),
    "reserved": (ONLY.replace("    id: int", "    when: int = param(0, 'x.')\n    id: int"),
                 "the field OnlyParams.when, which every stage has"),
    "bad default": (ONLY.replace("param(-1,", 'param("x",'), "a default in OnlyParams that is not valid"),
    "on by default": (ONLY.replace("ge=-1)", "ge=-1)\n    def is_off(self): return False"),
                      "is on with the defaults of OnlyParams"),
    "no apply": (ONLY.replace(APPLY, ""), r"Only has no apply. Expected: apply(self, logits, rows)"),
    "bad apply": (ONLY.replace("(self, logits, rows)", "(self, logits)"), "Only has apply(self, logits)"),
    "bad commit": (ONLY + "    def commit(self, slot): pass\n", "Only has commit(self, slot)"),
}  # fmt: skip


def test_the_message_says_what_was_seen_and_a_run_that_names_it_exits_with_4(run, plugin):
    for number, (name, (code, message)) in enumerate(BROKEN.items()):
        path = plugin(code, f"plugin_{number}.py")
        with pytest.raises(PluginError) as caught:
            make_registry([str(path)])
        assert message in caught.value.message, name
        assert str(path) in caught.value.message, name
        done = run("--plugin", path, "hi")
        assert (done.code, done.out) == (4, ""), name
        assert message in done.err, name


def test_what_is_no_plugin_exits_with_4_or_2(run, plugin):
    for target in ["nowhere.py", "no_such_module:Name", "json:nothing", "json:__name__"]:
        assert run("--plugin", target, "hi").code == 4, target

    assert run("--plugin", "nothing", "hi").code == 2

    path = plugin(ONLY.replace("ids = torch", 'raise KeyError("lost")\n        ids = torch'))
    done = run("--plugin", path, "--stage", "only=97", "hi")
    assert done.code == 4
    assert "'only'" in done.err


def test_an_installed_one_ends_only_the_run_that_names_its_stage(install, gencli, run, monkeypatch):
    install("broken_module", "1 / 0", shattered="Only")
    assert gencli("--help").code == 0
    assert gencli("run", "--help").code == 0
    assert run("--seed", 1, "--max-tokens", 2, "hi").code == 0
    listed = gencli("stages", "list")
    assert listed.code == 0
    (line,) = [line for line in listed.out.splitlines() if line.startswith("broken")]
    assert "shattered" in line
    assert "ZeroDivisionError" in line
    assert line.endswith("gencli-test 1.2")
    assert run("--stage", "shattered=1", "hi").code == 4
    monkeypatch.setenv("GENCLI_NO_PLUGINS", "1")
    assert run("--stage", "shattered=1", "hi").code == 2


def test_an_error_has_its_file_and_line_and_debug_the_traceback(run, gencli, plugin):
    code = ONLY.replace("ids = torch", 'raise KeyError("lost")\n        ids = torch')
    path = plugin(code)
    line = 1 + code.splitlines().index('        raise KeyError("lost")')
    where = f"""KeyError("'lost'") in {path.name}, line {line}"""
    done = run("--plugin", path, "--stage", "only=97", "hi")
    assert where in done.err
    assert "Traceback" not in done.err
    debugged = run("--plugin", path, "--stage", "only=97", "--debug", "hi")
    assert f'File "{path}", line {line}, in apply' in debugged.err

    checked = gencli("stages", "check", path)
    assert f"KeyError: 'lost' in {path.name}, line {line}" in checked.out
    assert "Traceback" not in checked.out
    assert f'File "{path}", line {line}, in apply' in gencli("stages", "check", path, "--debug").out

    broken = plugin("import json\n1 / 0\n", "broken.py")
    assert "ZeroDivisionError: division by zero in broken.py, line 2" in run("--plugin", broken, "hi").err
