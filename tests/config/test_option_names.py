"""Messages show flags in place of keys; an unknown name is answered with the one that was meant."""

import re

import pytest

from gencli.batch.batch_options import OWN
from gencli.batch.batch_rows import refuse_key
from gencli.chat.slash_commands import COMMANDS as SLASH
from gencli.chat.slash_commands import find_option
from gencli.cli.app import COMMANDS
from gencli.cli.trace_views import OWN as OF_EXPLAIN
from gencli.config.option_names import (
    COMMAND_NAMES,
    OPTION_NAMES,
    SENTENCES,
    SLASH_NAMES,
    meant_option,
    with_flags,
)
from gencli.config.presets import unknown_key
from gencli.config.run_options import OPTIONS
from gencli.config.settings import environment_layer
from gencli.errors import UsageError


def test_the_key_of_an_option_is_shown_as_its_flag():
    for entry in [*OPTIONS, *OWN]:
        assert with_flags(f"Raise `{entry.key}` to 4.") == f"Raise {entry.flag} to 4.", entry

    assert with_flags("Add `verify` = rejection, or `n` = 4.") == "Add --verify rejection, or -n 4."

    assert with_flags("`matched` says at which; `maxx` = 4.") == "`matched` says at which; `maxx` = 4."

    flags = {entry.key: entry.flag for entry in OPTIONS}
    assert [entry.key for entry in OWN if flags.get(entry.key, entry.flag) != entry.flag] == []


KEYS = {entry.key for entry in (*OPTIONS, *OWN, *OF_EXPLAIN)}


def test_a_flag_that_is_not_there_names_the_one_of_the_same_meaning(gencli):
    for flag, said in [
        ("--temp", "Did you mean --temperature?"),
        ("--n-predict", "Did you mean --max-tokens?"),
        ("--max_new_tokens", "Did you mean --max-tokens?"),
        ("--output-format", "Did you mean --format?"),
        ("--repeat-last-n", "Did you mean --penalty-window?"),
        ("--tensor-parallel-size", "Did you mean --tp?"),
        ("--topk", "Did you mean --top-k?"),
        ("--top-sigma", "Did you mean --top-n-sigma?"),
        ("--dry-penalty-last-n", "Did you mean --dry-window?"),
        ("--no-repeat-ngram-size", "Did you mean --no-repeat-ngram?"),
        ("--async-scheduling", "Did you mean --async?"),
        ("--encoder-repetition-penalty", "--stage 'repetition:penalty=0.8,scope=prompt'"),
        ("--rep-pen-slope", "slope=0.7"),
        ("--eos", "Did you mean --eos-above or --ignore-eos?"),
        ("--max_tokns", "Did you mean --max-tokens?"),
        ("--top-logprobs", "--logprobs"),
        ("--ctx-size", "the model's whole context; --max-tokens limits"),
        ("--prompt", "it is the argument"),
        ("-p", "it is the argument"),
        ("--progress", "--quiet turns it off"),
        ("-cnv", "There is no option -cnv.\nHint: gencli chat"),
        ("--nope", "See gencli run --help."),
        ("--x", "See gencli run --help."),
        ("--" + "x" * 100_000, "See gencli run --help."),
    ]:
        result = gencli("run", flag, "3", "hi")
        assert (result.code, result.out) == (2, ""), flag
        assert said in result.err, flag

    result = gencli("chat", "--contrastive-alpha", "0.5")
    assert (result.code, result.out) == (2, "")
    assert (
        "There is no option --contrastive-alpha.\nHint: It is an option of gencli run, not of gencli chat."
        in result.err
    )

    for arguments, said in [
        (["-temp", "0.5"], "-temp is read as -t emp. Did you mean --temperature?"),
        (["-ngl", "99"], "-ngl is read as -n gl. The whole model lies on --device"),
    ]:
        result = gencli("run", *arguments, "hi")
        assert (result.code, said in result.err) == (2, True), result.err


def _of_environment(name):
    return environment_layer({f"GENCLI_{name.upper()}": "1"})


def _raised(call, name):
    with pytest.raises(UsageError) as caught:
        call(name)
    return f"{caught.value.message} {caught.value.hint}"


def test_keys_and_variables_are_answered_as_flags_are():
    for say, spelled in [
        (unknown_key, "'temperature'"),
        (lambda name: refuse_key(name).message, "'temperature'"),
        (lambda name: _raised(find_option, name), "temperature"),
        (lambda name: _raised(_of_environment, name), "GENCLI_TEMPERATURE"),
    ]:
        for name in ("temp", "temprature", "tempereture"):
            assert f"Did you mean {spelled}?" in say(name), say
        assert "cut, and " in say("min_keep"), say
        assert "Did you mean" not in say("nope"), say


def test_a_command_that_is_not_there_or_missing_names_those_that_are(gencli):
    for arguments, said in [
        (["generate"], "Did you mean 'run'?"),
        (["help"], "Did you mean '--help'?"),
        (["ls"], "Did you mean 'models'?"),
        (["stages", "shwo"], "Did you mean 'show'?"),
        (["config", "ls"], "Did you mean 'list'?"),
        (["stages"], "gencli stages needs one of: check, list, show."),
        (["schema", "adit"], "Did you mean 'audit'?"),
        (["schema"], "gencli schema needs one of: audit."),
        (["completion"], "gencli completion needs one of: bash, zsh, fish."),
        (["completion", "tcsh"], "gencli completion takes bash, zsh, fish, not 'tcsh'."),
    ]:
        result = gencli(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert said in result.err, arguments


def test_the_table_names_what_exists_and_each_name_of_others_stands_for_one_thing():
    assert set(OPTION_NAMES) <= KEYS
    placeholders = {key for text in SENTENCES for key in re.findall(r"{(\w+)}", text)}
    assert placeholders <= KEYS
    sub_commands = {"list", "show", "check", "lint", "diff", "export"}
    assert set(COMMAND_NAMES) <= {*COMMANDS, *sub_commands, "--help", "--version"}
    assert set(SLASH_NAMES) <= set(SLASH)

    for table in [{**OPTION_NAMES, **SENTENCES}, SLASH_NAMES]:
        names = [name for others in table.values() for name in others.split()]
        assert sorted(names) == sorted(set(names)), table
        assert set(names).isdisjoint(KEYS if table is not SLASH_NAMES else SLASH), table


# Names of parameters in llama.cpp, text-generation-webui, SillyTavern, koboldcpp, ExLlamaV2 and V3, TabbyAPI,
# transformers, SGLang and mlx-lm.
SAMPLING = """
    samplers sampler_seq temp top_nsigma nsigma typical_p typ_p repeat_last_n repeat_penalty
    dry_penalty_last_n dry_sequence_breaker dry_sequence_breakers dynatemp_range dynatemp_exp
    dynatemp_exponent dynatemp_low dynatemp_high mirostat_lr mirostat_ent mirostat_mode smoothing_factor
    tfs_z epsilon_cutoff eta_cutoff encoder_repetition_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids sequence_bias exponential_decay_length_penalty
    suppress_tokens begin_suppress_tokens forced_eos_token_id forced_bos_token_id min_new_tokens
    guidance_scale repetition_penalty_range sampler_priority rep_pen rep_pen_range rep_pen_slope
    freq_pen presence_pen sampler_order samplers_priorities sampler_seed banned_tokens banned_strings
    token_repetition_penalty token_repetition_range token_repetition_decay token_frequency_penalty
    token_presence_penalty penalty_range min_temp max_temp temp_exponent dry_range dry_max_ngram
    bad_words allowed_token_ids sampling_seed min_keep thinking_token_budget
""".split()


def test_every_parameter_of_another_sampler_is_known_or_answered():
    for name in SAMPLING:
        assert name in KEYS or meant_option(name, {key: key for key in KEYS}), name
