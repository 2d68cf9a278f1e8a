"""Model folders on the command line: the bundled model runs, a broken folder is one clear message."""

import shutil
from importlib.resources import files

TINY = files("gencli") / "assets" / "tiny"


SHORT = ("--seed", "7", "--max-tokens", "8", "Once upon a time")


def write_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


def ask_for_code(folder):
    (folder / "config.json").write_text(
        '{"model_type": "odd", "auto_map": {"AutoModelForCausalLM": "odd.Odd"}}'
    )


FAULTS = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    "corrupt weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"\1" * 99), "damaged"),
    "pickle only": (write_pickle, "pickle"),
    "remote code": (ask_for_code, "--trust-remote-code"),
    "no tokenizer": (lambda folder: [path.unlink() for path in folder.glob("token*")], "tokenizer"),
    "no folder": (shutil.rmtree, "There is no folder"),
}


def test_a_broken_folder_is_exit_5_and_one_message(gencli, tmp_path):
    for name, (spoil, said) in FAULTS.items():
        folder = tmp_path / name
        shutil.copytree(TINY, folder)
        spoil(folder)
        result = gencli("run", "--model", folder, "--raw", *SHORT)
        assert (result.code, result.out) == (5, ""), name
        assert said in result.err, name
        assert "Traceback" not in result.err, name
        assert result.err.startswith("Error: "), name


COMPANY = "In bfloat16 a text may depend on what is computed beside it"


UNSTEADY = ("--dtype", "bfloat16", "--invariant", "off")


def test_a_chat_says_so_where_it_has_drafts(gencli):
    for flags, is_said in [((), False), (("--draft", "ngram"), True)]:
        done = gencli("chat", *UNSTEADY, "--max-tokens", 2, *flags, stdin=b"Hello\n")
        assert (done.code, COMPANY in done.err) == (0, is_said), flags
