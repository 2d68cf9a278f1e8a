"""Commands take a GGUF file where they take a model's folder."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.helpers.gguf_files import add_byte_level, write_model
from tests.models.tiny_models import build_native
from tests.text.test_gguf_tokenizer import byte_level

TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    tokenizer = byte_level("llama-bpe")

    def add(writer, count):
        add_byte_level(writer, tokenizer, "llama-bpe", count=count, bos=0, eos=1)
        writer.add_chat_template(TEMPLATE)

    built = build_native("llama")
    built.resize_token_embeddings(700)
    write_model(path, built, "Q8_0", add)
    return path


def test_a_file_runs_alone_and_in_the_template_of_the_file(gencli, model):
    done = gencli(
        "run", "--model", model, "-t", "0", "--max-tokens", "4", "--dtype", "float32", "--format", "json",
        "Hello",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Q8_0 is widened to float32" in done.err
    record = done.json
    assert record["weights_sha256"] == sha256(model.read_bytes()).hexdigest()
    assert record["model_revision"] is None

    done = gencli("run", "--model", model, "--chat", "-t", "0", "--max-tokens", "3", "Hello")
    assert done.code == 0, done.err
    assert gencli("chat", "--model", model, "--max-tokens", "3", stdin=b"Hello\n/quit\n").code == 0


def test_a_batch_runs_and_resumes(gencli, model, tmp_path):
    (tmp_path / "in.txt").write_text("Hello\nworld\n")
    arguments = (
        "batch", tmp_path / "in.txt", "-o", tmp_path / "out.jsonl", "--model", model, "--max-tokens", "3",
    )  # fmt: skip
    assert gencli(*arguments).code == 0
    first = (tmp_path / "out.jsonl").read_bytes()
    assert gencli(*arguments, "--resume").code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert len(first.splitlines()) == 2


def test_a_file_is_shown_listed_split_into_tokens_and_may_have_an_alias(gencli, model):
    shown = gencli("models", "show", model)
    assert shown.code == 0, shown.err
    assert "llama (GGUF) (llama)" in shown.out
    assert "native: the decoder knows the family" in shown.out
    record = gencli("models", "show", model, "--format", "json").json
    assert (record["dtype"], record["chat_template"], record["grammars"]) == ("Q8_0", True, "exact")
    assert str(model) in gencli("models", "list", model.parent).out
    assert gencli("tokenize", "--model", model, "Hello").code == 0

    assert gencli("models", "alias", "mine", model).code == 0
    assert gencli("models", "show", "mine").code == 0
    assert gencli("models", "alias", "mine", "--remove").code == 0


def test_only_the_decoder_runs_files_that_are_there(gencli, model, tmp_path):
    for arguments, code, reason in [
        (("--backend", "transformers"), 2, "--backend transformers does not run GGUF files"),
        (("--trust-remote-code",), 5, "code of the model may run"),
    ]:
        done = gencli("run", "--model", model, *arguments, "Hello")
        assert (done.code, done.out) == (code, ""), arguments
        assert reason in done.err, arguments

    done = gencli("run", "--model", tmp_path / "none.gguf", "Hello")
    assert done.code == 5
    assert "There is no file" in done.err


def test_a_file_in_the_cache_of_the_hub_has_a_name(gencli, model, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    place, commit = tmp_path / "models--org--name", "a" * 40
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(commit)
    (place / "blobs").mkdir()
    (place / "snapshots" / commit).mkdir(parents=True)
    digest = sha256(model.read_bytes()).hexdigest()
    (place / "blobs" / digest).write_bytes(model.read_bytes())
    (place / "snapshots" / commit / "q.gguf").symlink_to(f"../../blobs/{digest}")
    done = gencli("run", "--model", "org/name/q.gguf", "--max-tokens", "2", "--format", "json", "Hello")
    assert done.code == 0, done.err
    assert (done.json["model_revision"], done.json["weights_sha256"]) == (commit, digest)
    assert "gencli models pull org/name:p.gguf" in gencli("run", "--model", "org/name/p.gguf", "Hello").err
