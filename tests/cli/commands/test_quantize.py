"""gencli quantize, and runs with quantized weights: one text in any company."""

PROMPTS = ("Once upon a time", "One winter, a fox", "Question: Is Brindle a town?\nAnswer:")


def test_what_does_not_go_is_refused_by_name(gencli):
    for words, said in [
        (("run", "--quantize", "int8", "--backend", "transformers", "Hi"), "--backend is transformers"),
        (("run", "--quantize", "int8", "--dtype", "bfloat16", "Hi"), "--dtype is bfloat16"),
        (("run", "--quantize", "int4", "--kernel", "plain", "Hi"), "--kernel is plain"),
        (("run", "--quantize", "int8", "-m", "fake", "Hi"), "knows only none"),
        (("quantize", "tiny"), "takes a model and a new folder"),
        (("quantize", "fake", "out"), "has no files"),
        (("quantize", "tiny", "no/such/out"), "There is no folder no/such"),
    ]:
        done = gencli(*words)
        assert done.code in (2, 5), words
        assert said in done.err, words
