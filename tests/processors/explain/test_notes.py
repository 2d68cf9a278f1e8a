"""A stage says what it did to a token, and why it did nothing."""

import torch

from processors.chain import Chain
from processors.explain_rows import explain_rows
from processors.rows import Rows
from processors.testing.checks import Text
from tests.processors.explain.test_rows import ENV, Run

VOCABULARY = ENV.vocabulary


def stages(chain, *, prompt="", output="", drafts="", likely=""):
    """The views of the stages by name, of a greedy row behind a text; `likely` is its most likely token."""
    encode = VOCABULARY.encode
    text = Text(tuple(encode(prompt, special=False)), tuple(encode(output, special=False)), ())
    run = Run([Chain.parse(chain)], ["greedy"], [text])
    rows = Rows.build(run.history, [0], [encode(drafts, special=False)]) if drafts else run.rows
    rows = run.pipeline.prepare(rows.select([len(rows) - 1]))
    logits = torch.zeros(1, ENV.vocab_size)
    logits[0, encode(likely, special=False)] = 5.0
    tokens = run.sampler(run.pipeline(logits, rows), rows)
    (view,) = explain_rows(run.pipeline, run.sampler, logits, rows, tokens, ["greedy"])
    return {stage.name: stage for stage in view.stages}


def only(chain, **options):
    """What the stages of the chain say, and why they do nothing."""
    return [(stage.note, stage.why_not) for stage in stages(chain, **options).values()]


PENALTIES = [
    ("repetition=1.3", "seen 3x, at 0 2 of the prompt and 1 of the output"),
    ("repetition:penalty=1.3,scope=prompt", "seen 2x, at 0 2 of the prompt"),
    ("repetition:penalty=1.3,window=2", "seen 1x, at 1 of the output"),
    ("frequency=0.5", "seen 1x, at 1 of the output"),
    ("presence:penalty=0.5,scope=both", "seen 3x, at 0 2 of the prompt and 1 of the output"),
]


def test_a_penalty_says_where_the_token_that_it_changed_most_stood():
    for chain, said in PENALTIES:
        assert only(chain, prompt="xyx", output="yx", likely="x") == [(said, "")], chain


def test_of_many_places_the_last_are_named():
    ((note, _),) = only("presence:penalty=1,scope=both", prompt="x" * 9, output="y", likely="x")
    assert note == "seen 9x, last at 5 6 7 8 of the prompt"


def test_drafts_count_as_output():
    ((note, _),) = only("presence=1", prompt="y", output="z", drafts="x", likely="x")
    assert note == "seen 1x, at 1 of the output"


REPEATS = [
    ("dry:multiplier=0.8,allowed=1", 'would repeat "xyz", 3 tokens, as at 2 of the prompt: -1.4'),
    ("no_repeat_ngram=3", 'would repeat "xyz", 3 tokens, as at 2 of the prompt'),
    ("lz:strength=1,scope=prompt", 'would repeat "xyz", 3 tokens, as at 2 of the prompt: -'),
]


def test_a_stage_against_repetition_says_what_a_token_would_repeat():
    for chain, said in REPEATS:
        ((note, why_not),) = only(chain, prompt="xyz", output="qxy", likely="z")
        assert note.startswith(said), chain
        assert why_not == "", chain


def test_a_text_in_a_note_keeps_its_characters_and_is_cut():
    ((note, _),) = only("dry:multiplier=1,breakers=[]", prompt="x\x1b" * 30, output="x", likely="\x1b")
    assert "\x1b" in note
    assert '"...' in note
    assert len(note) < 120


WHY_NOT = [
    ("repetition:penalty=1.3,scope=output", "no token seen"),
    ('presence:penalty=1,scope=prompt,exempt=["q"]', "the tokens seen are exempt or masked"),
    ("dry=0.8", "no tail repeats"),
    ("no_repeat_ngram=3", "no tail repeats"),
    ('ban=["the cat"]', "no token completes a banned text"),
    ("begin_suppress=[5] | temperature=2", "not the first token"),
    ("eos_above=0.5", "no end of text above 0.5"),
    ("force:text=a,at=tokens,after_tokens=9", "the model chooses here"),
    ("top_k=500", "500 tokens or fewer are left"),
    ("min_p=1e-30", "nothing below the threshold"),
    ("xtc:probability=1,threshold=0.4", "no two tokens above the threshold"),
    ("xtc:probability=1e-9,threshold=0.001", "the roll was too high"),
    ('top_k:k=3,when={"from": 7, "to": 9}', "condition not met: from 7, to 9"),
    ('top_k:k=3,when={"inside": "thinking"}', "condition not met: inside thinking"),
    ('temperature:temperature=0,when={"to": 5} | top_k=2', "the draw is greedy here"),
]


def test_a_stage_says_why_it_did_nothing():
    for chain, said in WHY_NOT:
        output = "" if "scope=output" in chain else "w"
        name = "top_k" if "greedy" in said else Chain.parse(chain).stages[0][0]
        found = stages(chain, prompt="q", output=output, likely="q")[name]
        assert (found.acted, found.why_not) == (False, said), chain
        assert found.alive[0] == found.alive[1], chain
        assert found.mass_kept == 1, chain
        assert (found.removed, found.changed) == ((), ()), chain


def test_a_stage_whose_condition_does_not_hold_stands_at_its_place():
    found = stages(
        'presence=1 | temperature=2 | top_k:k=3,when={"from": 7} | min_p=0.5', output="w", likely="q"
    )
    assert [*found] == ["presence", "temperature", "top_k", "min_p"]
    assert found["top_k"].after == found["temperature"].after
    assert [stage.acted for stage in found.values()] == [True, True, False, True]


def test_one_token_left_is_why_nothing_more_is_removed():
    found = stages("top_k=1 | min_p=0.1", likely="q")
    assert found["min_p"].why_not == "one token is left"
