"""Show where the time of a decode step goes on a card: the device's by kernel, the host's by function.

    python scripts/gpu/step_profile.py OUT.txt [--rows N,N] [--ways N,N]

Steps of the random 1B model of `scripts/bench/gpu.py`; a way is a number of WAYS in gpu_steps.py.
"""

import argparse
import cProfile
import io
import pstats
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from gpu_steps import WAYS, step_engine, write_random
from predictions import SHAPES
from torch.profiler import ProfilerActivity, profile

from gencli.engine.engine import Engine

DEVICE = torch.device("cuda", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show where the time of a decode step goes.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", default="1,32")
    parser.add_argument("--ways", default="0,2,5")
    given = parser.parse_args()
    shape = SHAPES["1B"]
    with tempfile.TemporaryDirectory() as name, given.out.open("w", encoding="utf-8") as out:
        write_random(Path(name), shape, DEVICE)
        for way in (WAYS[int(number)] for number in given.ways.split(",")):
            for rows in map(int, given.rows.split(",")):
                engine = step_engine(Path(name), shape, way, DEVICE, rows, 512, 400)
                times = steps(engine, 150)
                slow = [
                    (at, round(1e3 * one, 1)) for at, one in enumerate(times) if one > 3 * sorted(times)[75]
                ]
                print(f"== {way.name} {way.weights}, {rows} rows: {1e3 * sorted(times)[75]:.3f} ms", file=out)
                print(
                    f"   slow steps: {slow}", *device(engine), *host(engine), sep="\n", file=out, flush=True
                )
                del engine
                torch.cuda.empty_cache()


def steps(engine: Engine, count: int) -> list[float]:
    """Return the seconds of steps."""
    times = []
    torch.cuda.synchronize()
    for _ in range(count):
        start = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return times


def device(engine: Engine, count: int = 10) -> list[str]:
    """Return the microseconds of a step by kernel."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        steps(engine, count)
    taken, launched = Counter[str](), Counter[str]()
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            taken[event.name[:80]] += event.time_range.elapsed_us()
            launched[event.name[:80]] += 1
    lines = [f"   device {sum(taken.values()) / count:8.1f} us"]
    return lines + [
        f"     {us / count:8.1f} us {launched[name] / count:6.1f} {name}"
        for name, us in taken.most_common(15)
    ]


def host(engine: Engine, count: int = 60) -> list[str]:
    """Return the functions of the host that take longest."""
    found = cProfile.Profile()
    found.enable()
    steps(engine, count)
    found.disable()
    text = io.StringIO()
    pstats.Stats(found, stream=text).sort_stats("tottime").print_stats(30)
    return [line for line in text.getvalue().splitlines()[4:] if line.strip()]


if __name__ == "__main__":
    main()
