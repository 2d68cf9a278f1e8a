"""What Tab offers in bash, zsh and fish, and that it is quick."""

import pytest

from gencli.config.preset_files import stage_order, stage_values

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def tab(gencli, monkeypatch, tmp_path):
    """Call `tab(shell, *words)`: what is offered for the last of the words, a line for each."""
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "folder/inner", ".hidden"):
        (tmp_path / name).mkdir()
    for name in ("mine.yaml", "stage.py", "notes.txt"):
        (tmp_path / name).write_text("")

    def press(shell, *words):
        monkeypatch.setenv("_GENCLI_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(words))
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        result = gencli()
        assert result.code == 0, result.err
        return result.out.splitlines()

    return press


# Bash takes words apart at = and :, and puts what is offered in the place of the last part.
BASH = {
    "a command": ("r", ["run"]),
    "a stage to show": ("stages show repet", ["repetition"]),
    "a stage or file to check": ("stages check sta", ["stage.py"]),
    "presets to compare": ("config diff precise brai", ["brainstorm"]),
    "a preset as a side": ("compare --a brai", ["brainstorm"]),
    "a profile as a side": ("compare --b compat : ml", ["mlx"]),
    "presets and files to check": ("config lint mine", ["mine.yaml"]),
    "a drafter": ("run --draft s", ["suffix"]),
    "a drafter that is a folder": ("run --draft fo", ["folder/"]),
    "a folder in a folder": ("run --model folder/", ["folder/inner/"]),
    "a model": ("run -m tiny-", ["tiny-draft"]),
    "a weaker model": ("run --contrast tiny-", ["tiny-draft"]),
    "a preset": ("run --preset brai", ["brainstorm"]),
    "a preset behind an equals sign": ("run --preset = brai", ["brainstorm"]),
    "a preset's file": ("run --preset ./", ["./folder/", "./mine.yaml"]),
    "a field of a stage": ("run --stage top_k : t", ["ties="]),
    "all fields of a stage": ("run --stage temperature :", ["temperature="]),
    "a field behind an equals sign": ("run --stage = top_k : t", ["ties="]),
    "an order": ("run --chain top_k,te", ["top_k,temperature"]),
    "a choice": ("run --sampler gu", ["gumbel"]),
    "a command of a command": ("config sh", ["show"]),
    "a flag of a command of a command": ("config show --repet", ["--repetition-penalty"]),
    "a model to show": ("models show tiny-", ["tiny-draft"]),
    "nothing behind a model": ("models show tiny t", []),
    "a shell": ("completion z", ["zsh"]),
    "nothing for a prompt": ("run Onc", []),
}


def test_bash_is_offered(tab):
    for words, offered in BASH.values():
        assert tab("bash", "gencli", *words.split(" ")) == offered, words


def test_zsh_and_fish_are_offered_whole_words(tab):
    for shell in ["zsh", "fish"]:
        for words, offered in [
            ("run --preset=brai", "--preset=brainstorm"),
            ("run --stage top_k:t", "top_k:ties="),
            ("run --stage=top_k:t", "--stage=top_k:ties="),
            ("stages show top_p", "top_p"),
            ("run --draft subf", None),
        ]:
            text = "\n".join(tab(shell, "gencli", *words.split())).replace("\\", "").replace("::", ":")
            assert (offered in text) if offered else (text in ("", "_files")), (shell, words)

    for shell in SHELLS:
        lines = tab(shell, "gencli", "co")
        for word in ("completion", "config"):
            assert any(word in line for line in lines), (shell, word)


def test_the_script_of_bash_and_fields_that_are_not_offered_again(gencli):
    assert stage_values("top_k:k=3,") == ["top_k:k=3,ties=", "top_k:k=3,keep="]
    assert stage_values("top_k:ties=k") == ["top_k:ties=keep"]
    assert stage_values("none:") == []
    assert "penalties,top_k" in stage_order("penalties,to")
    assert stage_order("top_k,top_k") == []

    script = gencli("completion", "bash").out
    assert "compopt -o nospace" in script
    assert script.endswith("complete -o default -F _gencli_completion gencli\n")
