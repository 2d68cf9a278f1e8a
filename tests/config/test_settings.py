"""Layers: the later one wins, and every value knows where it came from."""

from gencli.config.chain_assembly import assemble
from gencli.config.job import make_job
from gencli.config.settings import DEFAULT, FLAG, resolve


def test_nothing_given_is_an_empty_chain_and_later_layers_win():
    settings = resolve(("preset", {"top_p": 0.9, "max_tokens": 5}), (FLAG, {"top_p": "0.5"}))
    assert (settings["top_p"], settings.origin("top_p")) == (0.5, FLAG)
    assert (settings["max_tokens"], settings.origin("max_tokens")) == (5, "preset")
    assert (settings["model"], settings.origin("model")) == ("tiny", DEFAULT)

    job, other = make_job(resolve()), make_job(resolve())
    assert str(job.chain) == ""
    assert job.seed != other.seed  # equal once in 2**32 runs


def test_a_chain_has_what_was_given_and_its_origin():
    assembly = assemble(resolve(("preset", {"top_k": 5}), (FLAG, {"stage": ["top_k:ties=keep"]})))
    assert str(assembly.chain) == 'top_k:k=5,ties="keep"'
    assert [(entry.field, entry.origin) for entry in assembly.of_stage("top_k")] == [
        ("k", "preset"),
        ("ties", FLAG),
    ]

    flags = {
        "penalty_window": 9, "repetition_penalty": 1.2, "stage": ["presence=0.5"], "frequency_penalty": 0,
    }  # fmt: skip
    chain = assemble(resolve((FLAG, flags))).chain
    windows = {name: params.window for name, params in chain}
    assert windows == {"repetition": 9, "presence": 9, "frequency": None}


def test_a_seed_of_0_is_a_seed():
    assert make_job(resolve((FLAG, {"seed": "0"}))).seed == 0


def test_a_switch_that_is_off_leaves_its_contrary():
    assert resolve(("preset", {"raw": True}), (FLAG, {"chat": False}))["raw"]
