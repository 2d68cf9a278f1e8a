"""Jobs of many requests: shared by equal options, and bounded in memory."""

from gencli.config.job import Jobs, params_layer
from gencli.config.layers import gather


def make_jobs():
    return Jobs(gather({"model": "fake"}, {}), lambda values, registry: params_layer(values, registry, "row"))


def test_equal_options_share_a_job_and_large_ones_do_not_add_up():
    jobs = make_jobs()
    one, same = (jobs.job({"top_k": 5, "seed": seed}) for seed in (1, 2))
    assert one.assembly is same.assembly
    assert (one.seed, same.seed) == (1, 2)

    # A client can send another text of megabytes with each request.
    jobs = make_jobs()
    for number in range(40):
        jobs.job({"stop": [str(number) + "x" * (1 << 20)]})
    assert sum(map(len, jobs._jobs._values)) <= 16 << 20
