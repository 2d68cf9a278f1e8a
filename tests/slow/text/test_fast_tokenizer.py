"""A tokenizer loaded without transformers is the one that transformers loads."""

import shutil
import subprocess
import sys

from gencli.models.files.locate import bundled_folder
from gencli.text.fast_classes import DEFAULTS
from tests.helpers.tokenizers import unpack_tokenizer
from tests.text.fast_folders import CLASSES, assert_same, change, save


def test_published_models(tmp_path):
    for name in ["gpt-2", "qwen2"]:
        (tmp_path / name).mkdir()
        unpack_tokenizer(name, tmp_path / name)
        change(tmp_path / name / "config.json", model_type=name.replace("-", ""))
        assert_same(tmp_path / name)


def test_a_class_that_builds_its_parts(tmp_path):
    for options in [{}, {"add_prefix_space": True}, {"add_prefix_space": False}]:
        for name in CLASSES:
            kind, model_type, tokens = CLASSES[name]
            bos = name != "GPTNeoXTokenizer"
            assert_same(save(tmp_path, name, kind, model_type, bos=bos, **tokens, **options))

    for name in CLASSES:
        kind, _, tokens = CLASSES[name]
        save(tmp_path, name, kind, **tokens)
        change(
            tmp_path / "tokenizer_config.json", **dict.fromkeys(DEFAULTS[name].keys() - {"unk_token"}, ...)
        )
        fast = assert_same(tmp_path)
        assert (
            fast.special_tokens_map.items()
            >= {key: token for key, token in DEFAULTS[name].items() if key != "unk_token"}.items()
        ), name


def test_only_the_fallback_imports_transformers(tmp_path):
    shutil.copytree(bundled_folder("tiny"), tmp_path / "model")
    code = """
import sys
from gencli.runtime.models import load_tokenizer
for name in sys.argv[1:]:
    tokenizer = load_tokenizer(name)
    assert tokenizer.why_transformers == ""
    assert tokenizer.decode(tokenizer.encode("Once upon")) == "Once upon"
    assert len(tokenizer.token_bytes) == tokenizer.vocab_size
    assert "hi" in tokenizer.render_chat([{"role": "user", "content": "hi"}])
print(*sys.modules)
"""
    command = [sys.executable, "-c", code, "tiny", "tiny-draft", str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tokenizers" in done.stdout.split()
    assert "transformers" not in done.stdout.split()


def test_tokenize_imports_neither_torch_nor_transformers():
    code = """
import sys
from gencli.cli.app import main
try:
    main(["tokenize", "--chat", "Once upon"])
except SystemExit as end:
    assert not end.code
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tokenizers" in done.stdout.split()
    assert not {"torch", "transformers"} & set(done.stdout.split())
