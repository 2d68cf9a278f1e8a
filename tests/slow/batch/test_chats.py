"""What a batch needs the chat template for, and what is said where nothing reaches it."""

from tests.batch.test_chats import tools

HI = {"messages": [{"role": "user", "content": "hi"}]}


def test_tools_that_some_row_tells_of_are_enforced(bench, tools):
    cases = [
        ({"prompt": "hi"}, ["--chat"]), (HI, []), ({"prompt": "hi", "chat": True}, []),
        ({"prompt": "Do beep."}, []),
    ]  # fmt: skip
    for row, flags in cases:
        bench.write([{"prompt": "yo"}, row])
        done = bench.call(bench.input, "--model", "fake", "--max-tokens", "90", "--seed", "1", *tools, *flags)
        assert done.code in (0, 7), done.err
        assert '"beep"' in done.out, row
