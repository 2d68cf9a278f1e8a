"""A tokenizer loaded without transformers is the one that transformers loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gencli.models.files.local_models import bundled_folder
from gencli.text.fast_tokenizer import REGISTERED, load_fast
from gencli.text.tokenizer import HFTokenizer
from tests.text.fast_folders import assert_same, change, save

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if loop.index > 1 %}{% break %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{% generation %}<|end|>{% endgeneration %}{% endif %}"
    "{{ mood }}"
)


TOOLS = (
    "{{ bos_token }}{{ tools | tojson(indent=2, sort_keys=true) }}{% set n = namespace(a=1) %}"
    "{% for m in messages %}{% set n.a = n.a + 1 %}{% endfor %}{{ n.a }}"
    "{{ messages | tojson(separators=(',', ':')) }}{{ strftime_now(format='%Y') }}"
)


def test_the_bundled_models():
    for name in ["tiny", "tiny-draft"]:
        assert_same(bundled_folder(name))


def test_models_that_are_known_by_name(tmp_path):
    save(tmp_path, "GPT2Tokenizer", "bytes", "llama")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = [{"type": "Digits", "individual_digits": True}, byte_level]
    change(tmp_path / "tokenizer.json", pre_tokenizer={"type": "Sequence", "pretokenizers": steps})
    change(tmp_path / "tokenizer_config.json", vocab_size=49152, additional_special_tokens=["<s>"])
    assert_same(tmp_path)

    for legacy in [None, True, False]:
        save(tmp_path, "LlamaTokenizer", "pieces", "llama", bos=True, unk_token="<unk>")
        spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        steps = [{"type": "Prepend", "prepend": "▁"}, spaces]
        model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
        change(
            tmp_path / "tokenizer.json",
            normalizer={"type": "Sequence", "normalizers": steps},
            pre_tokenizer=None,
            model={**model, "unk_token": "<unk>"},
        )
        change(tmp_path / "tokenizer_config.json", legacy=legacy)
        assert_same(tmp_path)

    save(tmp_path, "Qwen2Tokenizer", "bytes", "qwen2", pad_token="<|end|>")
    change(tmp_path / "tokenizer_config.json", tokenizer_class="LlamaTokenizerFast")
    assert_same(tmp_path)


def test_added_tokens_of_the_configuration(tmp_path):
    told = json.loads((save(tmp_path, bos=True) / "tokenizer.json").read_text())
    tokens = {str(token.pop("id")): token for token in told["added_tokens"]}
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder=tokens)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<other>"}')  # not read
    assert_same(tmp_path)
    for token in tokens.values():
        token.update(lstrip=not token["lstrip"], normalized=True, special=False)
    tokens["900"] = {"content": "<fresh>", "special": True}
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder=tokens)
    assert_same(tmp_path)


def test_truncation_padding_and_a_missing_post_processor_change_no_text(tmp_path):
    save(tmp_path, pad_token="<pad>")
    shorten = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 30}, "direction": "Left", "pad_to_multiple_of": None}
    pad |= {"pad_id": 3, "pad_type_id": 0, "pad_token": "<pad>"}
    change(tmp_path / "tokenizer.json", truncation=shorten, padding=pad)
    assert_same(tmp_path)

    change(save(tmp_path) / "tokenizer.json", post_processor=None)
    assert_same(tmp_path)

    with pytest.raises(ValueError, match="clean_up_tokenization_spaces"):
        load_fast(save(tmp_path)).decode([1], clean_up_tokenization_spaces=True)


def test_chat_templates_of_the_configuration_have_names_or_none(tmp_path):
    for template in [CHATML, TOOLS]:
        change(save(tmp_path) / "tokenizer_config.json", chat_template=template)
        assert_same(tmp_path)

    named = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": TOOLS}]
    change(save(tmp_path) / "tokenizer_config.json", chat_template=named)
    assert assert_same(tmp_path).get_chat_template("tool_use") == TOOLS


def test_chat_templates_in_files(tmp_path):
    change(save(tmp_path) / "tokenizer_config.json", chat_template="replaced")
    (tmp_path / "chat_template.jinja").write_bytes(CHATML.encode() + b"\r\n")
    assert_same(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(TOOLS)
    assert_same(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    fast = load_fast(tmp_path)
    assert fast.chat_template == {"tool_use": TOOLS}
    with pytest.raises(ValueError, match="none of its templates is the default: tool_use"):
        fast.get_chat_template()


def test_model_types_are_those_of_transformers():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    theirs = {"MistralCommonBackend": "TokenizersBackend"}  # with mistral_common, for other files
    for model_type, name in REGISTERED.items():
        found = TOKENIZER_MAPPING_NAMES.get(model_type)
        assert theirs.get(found, found) == name, model_type
        assert CONFIG_MAPPING[model_type].model_type == model_type


def test_the_process_of_templates_imports_no_transformers():
    code = "import sys, gencli.templates.template_worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "tokenizers"} & set(done.stdout.split())


def test_a_fallback_says_why(tmp_path):
    save(tmp_path)
    assert HFTokenizer.load(tmp_path).why_transformers == ""
    (tmp_path / "special_tokens_map.json").write_text("{}")
    assert "special_tokens_map.json" in HFTokenizer.load(Path(tmp_path)).why_transformers
