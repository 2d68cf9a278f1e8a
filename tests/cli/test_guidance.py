"""--guidance and --contrast on the command line, in batches and in chats."""

TINY = ("run", "--model", "tiny", "--dtype", "float32", "--chat", "--seed", "2", "--max-tokens", "16")


HAPPY, SAD = "Tell a story about a happy dog.", "Tell a story about a sad dog."


def test_what_does_not_go_together_is_refused(run, gencli):
    for options, said in [
        (("--guidance", "-1"), "--guidance is -1, but has to be a number >= 0"),
        (("--guidance", "inf"), "--guidance is inf, but has to be a number >= 0 and <= 1e+06."),
        (("--negative", "x"), "--negative is given, but there is no guidance"),
        (("--negative", "", "--guidance", "2"), "negative prompt is empty"),
        (("--guidance", "2", "--contrast", "fake"), "--guidance and --contrast cannot be used together"),
        (("--contrast-alpha", "0.2"), "--contrast-alpha is given, but there is no contrast"),
        (("--contrast-beta", "2"), "--contrast-beta is given, but there is no contrast"),
        (("--contrast", ""), "--contrast is empty"),
        (("--dola", "low", "--guidance", "2"), "--dola and --guidance cannot be used together"),
        (("--dola", "middle"), "'middle' is neither low, high nor layers such as 2,4,6"),
        (("--dola", "low"), "gives no logits of its layers"),
    ]:
        found = run("abc", *options)
        assert found.code == 2, options
        assert said in found.err, options

    found = gencli("run", "abc", "--model", "tiny", "--contrast", "fake")
    assert found.code == 5
    assert "fake cannot be the amateur of tiny: their vocabularies differ. Token 0 is" in found.err
