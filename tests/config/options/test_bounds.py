"""Every number that can be given has both bounds, in the table where it is declared."""

from typing import Annotated, get_args, get_origin, get_type_hints

from batch import batch
from grammar import grammar
from sampler import sampler
from speculate import speculate
from stages import stages
from step import step

from gencli.batch.batch_options import OWN
from gencli.cli.commands.bench import runs
from gencli.cli.commands.models import PAGE
from gencli.config.option import Option
from gencli.config.run_options import OPTIONS
from processors.catalog import BUILTIN
from processors.params import MOST, describe

# Whose ids are held against the vocabulary, and whose biases are any finite number or -inf.
PAIRS = {("bias", "bias"), ("sequence_bias", "biases")}


def has_both(bounds):
    return (bounds.ge is not None or bounds.gt is not None) and (
        bounds.le is not None or bounds.lt is not None
    )


def kinds(hint):
    """The plain types in an annotation."""
    return {hint} if get_origin(hint) is None else {kind for arg in get_args(hint) for kind in kinds(arg)}


def test_every_number_has_both_bounds():
    # Other numbers have to be finite, which bounds them.
    for spec in BUILTIN:
        fields = describe(spec.params)
        open_ended = [
            n for n, about in fields.items() if int in kinds(about["type"]) and not has_both(about["bounds"])
        ]
        assert [(spec.name, name) for name in open_ended if (spec.name, name) not in PAIRS] == [], spec
        assert all(
            spec.params.__dataclass_fields__[n].metadata["finite"] for n, about in fields.items()
            if float in kinds(about["type"]) and (spec.name, n) not in PAIRS
        ), spec  # fmt: skip

    for command in [batch, grammar, runs, sampler, speculate, stages, step]:
        found = 0
        for name, hint in get_type_hints(command, include_extras=True).items():
            if get_origin(hint) is Annotated and kinds(get_args(hint)[0]) & {int, float}:
                info = get_args(hint)[1]
                assert None not in (info.min, info.max), name
                found += 1
        assert found > 2, command


def is_number(entry: Option):
    return bool(kinds(entry.type) & {int, float}) or isinstance(entry.read and _read(entry, "1"), int)


def _read(entry, text):
    try:
        return entry.read(text)
    except Exception:
        return None


EVERY = {entry.key: entry for entry in (*OPTIONS, *OWN, *PAGE.options)}


def test_every_option_that_is_a_number_has_both_bounds():
    for key in EVERY:
        entry = EVERY[key]
        is_of_a_stage = entry.stage and kinds(entry.type) == {float}
        assert not is_number(entry) or is_of_a_stage or has_both(entry.bounds), key


def test_a_number_beyond_them_is_refused_by_name(run):
    for arguments, said in [
        (("--threads", "99999999"), "--threads is 99999999, but has to be a number >= 1 and <= 1024."),
        (("--top-k", "1" + "0" * 20), f"a number >= -1 and <= {MOST}."),
        (("--top-k", "9" * 50), "a number of more than 40 digits"),
        (("--top-k", "9" * 5000), "is not a whole number."),
        (("-n", "1000000000"), "-n is 1000000000, but has to be a number >= 1 and <= 1000000."),
        (("--max-batch", "9" * 20), "--max-batch is"),
        (("--seed", str(2**64)), "--seed is"),
        (("--stop-id", str(2**31)), "--stop-id is"),
        (("--allow-ids", "9" * 5000), "is not a token id"),
        (("--logit-bias", "9" * 60 + "=1"), "bias names the text"),
        (("--stage", "top_p:keep=" + "1" + "0" * 20), "keep is"),
        (("--stage", "frequency:window=" + "9" * 30), "window is"),
        (("--draft", "ngram", "--draft-tokens", "9" * 5000), "neither a whole number nor auto"),
        (("--max-time", "inf"), "--max-time is inf"),
        (("--guidance", "inf"), "--guidance is inf"),
        (("--guidance", "nan"), "--guidance is nan"),
    ]:
        done = run(*arguments, "--max-tokens", "2", "hi")
        assert done.code == 2, done.err
        assert said in done.err, arguments
        assert len(done.err) < 2000, arguments
