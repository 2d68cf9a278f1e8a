"""--guidance and --contrast on the command line, in batches and in chats."""

from tests.cli.test_guidance import HAPPY, TINY


def test_a_chat_can_be_guided_and_begins_with_its_amateur(gencli):
    lines = [HAPPY, "/set guidance 2.5", "And then?", "/set guidance default", "And then?"]
    options = ("--seed", "3", "--max-tokens", "16", "--dtype", "float32")
    found = gencli("chat", *options, stdin="\n".join(lines).encode())
    plain = gencli("chat", *options, stdin="\n".join(lines[::2]).encode())
    assert found.code == 0
    assert found.out != plain.out
    assert found.out.startswith(gencli(*TINY, "--seed", "3", HAPPY).out.strip())

    options = ("--seed", "3", "--max-tokens", "16", "--contrast", "tiny-draft")
    assert gencli("chat", *options, stdin=f"{HAPPY}\nMore.".encode()).code == 0
    found = gencli("chat", "--seed", "3", stdin=b"/set contrast tiny-draft")
    assert found.code == 2
