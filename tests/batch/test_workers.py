"""Workers of Ray, without a cluster."""

from contextlib import contextmanager

import pytest

from gencli.batch.ray_workers import Worker
from gencli.errors import ModelError

ray = pytest.importorskip("ray")


@contextmanager
def broken():
    raise ModelError("No such model.", hint="Look for it.")
    yield


def reports(worker, until, **options):
    """What a worker reports until that holds."""
    while True:
        yield (report := worker.exchange((), **options))
        if until(report):
            return


def test_a_worker_that_cannot_load_says_why():
    worker = Worker(broken)
    with pytest.raises(ModelError, match="No such model"):
        list(reports(worker, lambda report: report.is_over))


def test_workers_share_what_is_there():
    cases = [
        ({"CPU": 2.0}, (2, None, None), "1 CPU"),
        ({"CPU": 2.0}, (4, None, None), "0.5 CPU"),
        ({"CPU": 2.0}, (3, None, None), "0.6666 CPU"),
        ({"CPU": 64.0, "GPU": 8.0}, (8, 4.0, None), "4 CPU and 1 GPU"),
        ({"CPU": 64.0, "GPU": 8.0}, (2, None, 4.0), "1 CPU and 4 GPU"),
    ]
    from gencli.batch.ray_workers import fair_share

    for there, asked, share in cases:
        assert str(fair_share(there, *asked, is_cpu=False)) == share, asked


def test_workers_that_find_no_place_are_refused():
    from gencli.batch.ray_workers import fair_share
    from gencli.errors import UsageError

    with pytest.raises(UsageError, match=r"2 workers with `worker_cpus` = 1.5 need 3; Ray has 2"):
        fair_share({"CPU": 2.0}, 2, 1.5, None, is_cpu=False)


def test_what_makes_no_sense_together_is_refused(bench):
    cases = [
        (("--workers", "2"), "--workers is for workers of Ray"),
        (("--worker-gpus", "1"), "--worker-gpus is for workers of Ray"),
        (
            ("--engine", "ray", "--max-batch", "auto"),
            "--max-batch auto plans from the memory of this machine",
        ),
        (("--engine", "ray", "--kv-memory", "1G"), "--kv-memory plans from the memory of this machine"),
        (("--engine", "ray", "--device", "cuda:1"), "--device cuda:1 names a GPU"),
        (("--engine", "ray", "--tp", "2"), "--tp splits a model over processes of torchrun"),
        (("--engine", "ray", "--worker-gpus", "1.5"), "--worker-gpus is 1.5"),
        (("--engine", "ray", "--worker-cpus", "-1"), "--worker-cpus is -1"),
    ]
    bench.write([{"prompt": "a"}])
    for flags, message in cases:
        assert message in bench.refused(*flags), flags


def test_without_ray_it_is_said_what_to_install(bench, monkeypatch):
    monkeypatch.setattr("gencli.batch.batch_plan.find_spec", lambda name: None)
    assert "pip install 'gencli[ray]'" in bench.refused("--engine", "ray")
