"""The scripts of scripts/bench."""

from serve import batch_command, make_tasks, measure_batch, measure_serve, serve_command


def test_both_loops_answer_the_whole_load():
    command, load = serve_command("tiny-draft", max_batch=2, threads=1), make_tasks(3)
    closed = measure_serve(command, load, clients=2)
    opened = measure_serve(command, load, clients=1, rate=50.0)
    batch = measure_batch(lambda path: batch_command(path, "tiny-draft", max_batch=2, threads=1), load)
    assert closed.tokens == opened.tokens == batch.tokens == sum(task.max_tokens for task in load)
    assert [len(each.times) > 0 for each in closed.answers] == [True] * 3
