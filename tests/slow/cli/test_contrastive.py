"""--contrastive-alpha on the command line: the text, refusals, layers, batches."""

import json

from tests.cli.test_contrastive import PROMPT, SEARCH


def test_the_seed_changes_nothing_and_alpha_does(run):
    one, other = (run(PROMPT, *SEARCH, "--seed", seed, "--max-tokens", 12).out for seed in (1, 2))
    assert one == other
    assert one != run(PROMPT, "-t", 0, "--max-tokens", 12).out

    result = run(PROMPT, *SEARCH, "-t", 0, "--top-p", 0.5, "--max-tokens", 12)
    assert result.out == run(PROMPT, *SEARCH, "--max-tokens", 12).out
    assert "The temperature is 0, so these stages change nothing: top_p" in result.err


def test_a_search_replaces_what_a_weaker_layer_says_of_the_choice(run, tmp_path):
    preset = tmp_path / "draw.yaml"
    preset.write_text("sampler: multinomial\nbeams: 3\n")
    plain = run(PROMPT, *SEARCH, "--max-tokens", 12)
    result = run(PROMPT, *SEARCH, "--max-tokens", 12, "--preset", preset)
    assert (result.code, result.out) == (0, plain.out)
    preset.write_text("contrastive_alpha: 0.6\n")
    assert run(PROMPT, "--max-tokens", 12, "--preset", preset).out == plain.out
    beams = run(PROMPT, "--beams", 2, "--max-tokens", 12)
    assert run(PROMPT, "--beams", 2, "--max-tokens", 12, "--preset", preset).out == beams.out


def test_rows_of_a_batch_have_searches_of_their_own(gencli, tmp_path):
    alphas = (0, 0.3, 0.6, 0.9)
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(f"{json.dumps({'prompt': PROMPT, 'contrastive_alpha': one})}\n" for one in alphas)
    )
    flags = ("--model", "fake", "--max-tokens", 12, "-t", 0)
    found = gencli("batch", file, *flags, "--max-batch", 6).lines
    assert [row["sampler"] for row in found] == ["greedy", *["contrastive"] * 3]
    alone = ("run", PROMPT, *flags, "--format", "json", "--contrastive-alpha")
    assert [row["text"] for row in found] == [gencli(*alone, one).json["text"] for one in alphas]
