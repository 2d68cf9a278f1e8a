"""Tokenizers: ids, bytes, BOS, chat templates, loading.

Prompts that fill a hole: the tokens of each family around the two texts.
"""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, processors

from gencli.core.events import Error, Finish
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.errors import ModelError, UsageError
from gencli.models.other_runners import FakeRunner
from gencli.templates.chat_templates import Instructions, render_conversation
from gencli.text.tokenizer import ByteTokenizer, HFTokenizer, Tokenizer, infill_of
from processors.chain import Chain
from tests.text.conftest import byte_level, llama_like, metaspace, wrap

CHATML = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    "{{ mood }}"
)


def remade(tokenizer, backend=None, **config):
    """A copy of a tiny tokenizer with other settings."""
    from transformers import PreTrainedTokenizerFast

    copy = backend or tokenizers.Tokenizer.from_str(tokenizer._hf.backend_tokenizer.to_str())
    config = {"bos_token": "<s>", "eos_token": "</s>", **config}
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=copy, **config), "copy")


def test_added_tokens_and_ids_that_are_left_out_count_as_known(make):
    tokenizer = make("byte-level")
    assert tokenizer.token_bytes[-3:] == (b"<tool>", b"two words", "中".encode())
    assert make("qwen2").vocab_size == 151_936

    model = tokenizers.models.BPE(vocab={"<s>": 0, "</s>": 1, "a": 5}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    made = remade(make("byte-level"), backend=tokenizer)
    assert made.token_bytes == (b"", b"", b"", b"", b"", b"a")


def test_a_text_gets_exactly_one_bos_where_it_is_asked_for(make):
    tokenizer = with_bos(make)
    assert tokenizer.encode("hi") == [tokenizer.bos_id, *tokenizer.encode("hi", special=False)]

    # [66]
    for text in ["hi", "<s>hi", "<s><s>hi"]:
        tokenizer = with_bos(make)
        assert tokenizer.encode(text).count(tokenizer.bos_id) == 1, text


def with_bos(make):
    tokenizer = remade(make("byte-level"))
    add = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", tokenizer.bos_id)])
    tokenizer._hf.backend_tokenizer.post_processor = add
    return tokenizer


def test_a_conversation_is_rendered_with_the_generation_prompt_and_arguments(make):
    tokenizer = remade(make("byte-level"), chat_template=CHATML)
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.has_chat_template
    assert tokenizer.render_chat(messages, mood="!") == "<|user|>hi<|assistant|>!"
    assert tokenizer.render_chat(messages, add_generation_prompt=False) == "<|user|>hi"

    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    tokenizer = ByteTokenizer()
    assert tokenizer.has_chat_template
    assert tokenizer.render_chat(messages) == "system: Be kind.\nuser: hi\nassistant:"
    assert tokenizer.render_chat(messages[1:], add_generation_prompt=False) == "user: hi"


TYPED = (
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
    "{% endif %}{% endfor %}{% endfor %}"
)
INDEXED = "{% for m in messages %}<{{ m.role }}>{{ m['content'][0]['text'] }}{% endfor %}"
MIXED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<assistant>{{ m.content }}"
    "{% elif m.role == 'tool' %}{% else %}<{{ m.role }}>{% for p in m.content %}"
    "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)


def test_a_template_gets_each_content_in_the_form_that_it_writes(make):
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "why"},
    ]
    for template in (CHATML.replace("<|{{ m.role }}|>", "<{{ m.role }}>"), TYPED, INDEXED, MIXED):
        tokenizer = remade(make("byte-level"), chat_template=template)
        text = tokenizer.render_chat(messages, add_generation_prompt=False)
        assert text == "<system>Be kind.<user>hi<assistant>yes<user>why", template


TOOLS = ({"type": "function", "function": {"name": "beep", "parameters": {}}}, {"name": "quit"})
SAID = "{% if tools %}There are tools.{% endif %}" + CHATML
DUMPED = "{{ tools | tojson }}" + CHATML
NESTED = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + CHATML
REFUSING = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + CHATML


def test_a_template_has_a_place_for_tools_if_it_writes_each(make):
    for template, tools, is_rendered in (
        (CHATML, TOOLS, False),
        (SAID, TOOLS, False),
        (REFUSING, TOOLS, False),
        (DUMPED, TOOLS, True),
        (NESTED, TOOLS[:1], True),
        (NESTED, TOOLS, False),
        (DUMPED + TYPED, TOOLS, True),
        ({"default": CHATML, "tool_use": DUMPED}, TOOLS, True),
        ({"default": DUMPED, "tool_use": CHATML}, TOOLS, False),
        ({"other": DUMPED}, TOOLS, False),
        (None, TOOLS, False),
    ):
        tokenizer = remade(make("byte-level"), chat_template=template)
        assert tokenizer.renders_tools(tools) == is_rendered, (template, tools)


def test_a_template_may_have_no_system_turn(make):
    dropping = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + dropping
    for template, has_turn in ((CHATML, True), (TYPED, True), (dropping, False), (refusing, False)):
        assert remade(make("byte-level"), chat_template=template).has_system_turn == has_turn, template
    assert not remade(make("byte-level"), chat_template={"other": CHATML}).has_system_turn


def test_instructions_arrive_in_the_form_of_the_template_and_special_tokens_as_in_other_messages(make):
    turn = {"role": "user", "content": "hi"}
    shown = '{"const": "</s><|user|>"}'
    for template in (CHATML, TYPED, INDEXED):
        tokenizer = remade(make("byte-level"), chat_template=template)
        by_hand = render_conversation(tokenizer, [{"role": "system", "content": shown}, turn])
        text = render_conversation(tokenizer, [turn], instructions=Instructions(shown))
        assert text == by_hand, template
        assert shown in text, template


def test_a_message_that_arrives_in_no_form_is_an_error(make):
    tokenizer = remade(make("byte-level"), chat_template=MIXED)
    called = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": called},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]
    with pytest.raises(ModelError, match="does not write messages of the role 'tool'"):
        tokenizer.render_chat(messages)
    tokenizer = remade(make("byte-level"), chat_template="{% for m in messages %}{{ m.text }}{% endfor %}")
    with pytest.raises(ModelError, match="role 'user'"):
        tokenizer.render_chat(messages[:1])


def test_a_missing_or_failing_template_is_an_error_that_says_what_to_do(make):
    tokenizer = make("byte-level")
    assert not tokenizer.has_chat_template
    with pytest.raises(ModelError, match="no chat template") as caught:
        tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert "raw prompt" in caught.value.hint

    for template, words in [
        (CHATML, "no tools here"),
        ("{{ messages[0].content + 1 }}", "failed"),
        ("{% if %}", "failed"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ]:
        tokenizer = remade(make("byte-level"), chat_template=template)
        with pytest.raises(ModelError, match=words):
            tokenizer.render_chat([{"role": "tool", "content": "hi"}])

    tokenizer = remade(make("byte-level"), chat_template=CHATML)
    with pytest.raises(UsageError, match="tokenize"):
        tokenizer.render_chat([], tokenize=True)


def test_a_vocabulary_of_words_needs_no_letters(tmp_path):
    from transformers import PreTrainedTokenizerFast

    words = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    assert HFTokenizer.load(tmp_path).encode("hello world") == [1, 2]


def test_a_saved_tokenizer_loads_from_its_folder_and_both_kinds_are_tokenizers(make, tmp_path):
    original = make("byte-level")
    original._hf.save_pretrained(tmp_path)
    loaded = HFTokenizer.load(tmp_path)
    assert loaded.token_bytes == original.token_bytes
    assert (loaded.bos_id, loaded.eos_ids, loaded.special_ids) == (0, (1,), original.special_ids)

    kinds: list[Tokenizer] = [ByteTokenizer(), make("byte-level")]
    for tokenizer in kinds:
        assert tokenizer.decode(tokenizer.encode("你 hi")) == "你 hi"
        assert tokenizer.bos_id in tokenizer.special_ids
        assert set(tokenizer.eos_ids) <= tokenizer.special_ids


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path):
    for files, hint in [
        ({}, "tokenizer.json"),
        ({"config.json": '{"model_type": "gpt2"}'}, "tokenizer.json"),
        ({"config.json": '{"model_type": "gemma"}'}, "tokenizer.json"),
        ({"config.json": '{"model_type": "llama"}', "tokenizer.json": "{"}, "tokenizer.json"),
        (
            {
                "config.json": '{"model_type": "llama"}',
                "tokenizer_config.json": '{"auto_map": {"AutoTokenizer": ["own.Own", null]}}',
            },
            "`trust_remote_code`",
        ),
    ]:
        folder = tmp_path / hint / str(len(files)) / str(len(str(files)))
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_text(content)
        with pytest.raises(ModelError, match="No tokenizer could be loaded") as caught:
            HFTokenizer.load(folder)
        assert hint in caught.value.hint, files

    with pytest.raises(ModelError):
        HFTokenizer.load(tmp_path / "missing")


def test_a_decoder_that_panics_fails_its_text_alone():
    words = {"[UNK]": 0, "<s>": 1, "</s>": 2, "aaaaaa": 3, "b": 4}
    slow = decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex("(a+)+$"), "")])
    backend = tokenizers.Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    backend.decoder = slow
    tokenizer = wrap(backend, "slow")
    on = Engine(FakeRunner(5), tokenizer)
    for name, prompt in (("good", (4,)), ("bad", (3,) * 6)):
        limits = Limits(max_tokens=3)
        on.submit(Request(name, prompt, Chain.parse("allowed=[4]"), seed=1, limits=limits))
    ends = {event.request: event for event in on.run() if isinstance(event, Finish | Error)}
    assert ends["good"].text == "bbb"
    assert "The tokenizer of slow failed on its own tokens" in ends["bad"].message


def with_tokens(make, *names):
    """A tokenizer that has these tokens, too."""
    tokenizer = make.__wrapped__()
    tokenizer._hf.add_tokens(list(names), special_tokens=True)
    return tokenizer, [tokenizer._hf.convert_tokens_to_ids(name) for name in names]


def test_the_tokens_stand_around_the_texts():
    for names in [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
    ]:
        for make in [byte_level, llama_like, metaspace]:
            tokenizer, (prefix, suffix, middle, *ends) = with_tokens(make, *names)
            infill = infill_of(tokenizer)
            assert (infill.prefix, infill.suffix, infill.middle, infill.ends) == (
                prefix, suffix, middle, tuple(ends),
            ), (names, make)  # fmt: skip
            ids = list(infill.prompt(tokenizer, "Hello", "a llo"))
            if tokenizer.encode("a")[0] == tokenizer.bos_id:
                assert ids.pop(0) == tokenizer.bos_id, (names, make)
            at = ids.index(suffix)
            assert (ids[0], ids[-1]) == (prefix, middle), (names, make)
            assert ids[1:at] == tokenizer.encode("Hello", special=False), (names, make)
            pieces = [tokenizer.token_bytes[token] for token in ids[at + 1 : -1]]
            assert b"".join(pieces) == b"a llo", (names, make)

    assert infill_of(ByteTokenizer()) is None
    assert infill_of(byte_level()) is None
    assert infill_of(with_tokens(byte_level, "<fim_prefix>", "<fim_suffix>")[0]) is None
