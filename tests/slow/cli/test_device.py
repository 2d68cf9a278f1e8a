"""Commands on a GPU that fails, is full, too small, or not there: one message, no traceback."""

import json

from tests.cli.test_device import ON_GPU, check, failing
from tests.sham import Card, sham_device


def test_a_run_and_a_chat_end_with_one_message(gencli):
    with sham_device() as seen:
        seen.faults.append(failing(1000))
        check(gencli("run", *ON_GPU, "Once upon a time"))

    with sham_device() as seen:
        seen.faults.append(failing(1000))
        check(gencli("chat", *ON_GPU, stdin=b"Hello\nMore\nAgain\n"))


def test_a_batch_keeps_what_is_finished_and_resumes(gencli, tmp_path):
    source, made = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"Once upon {n}"}) + "\n" for n in range(4)))
    arguments = ("batch", source, "-o", made, *ON_GPU, "--max-batch", "2")
    with sham_device() as seen:
        seen.faults.append(failing(3000))
        failed = gencli(*arguments)
        check(failed)
        assert "--resume continues the run" in failed.err
    with sham_device():
        assert gencli(*arguments, "--resume").code == 0
    resumed = made.read_text()
    with sham_device():
        assert gencli(*arguments, "--overwrite").code == 0
    assert [json.loads(line)["text"] for line in resumed.splitlines()] == [
        json.loads(line)["text"] for line in made.read_text().splitlines()
    ]


def test_the_second_of_two_gpus(gencli):
    with sham_device(Card(), Card()):
        first, second = (gencli("run", *ON_GPU[2:], "--device", f"cuda:{n}", "Once") for n in range(2))
    assert first.out == second.out
    assert (first.code, second.code) == (0, 0)
