"""What goes wrong between a client and the server: full queues, gone clients, slow readers, a dead engine."""

import asyncio
import json
import time
from random import Random

from gencli.server.serving import Conditions
from tests.server.conftest import idle
from tests.server.test_exchange import LONG, Client, begun, scenario, until


def check_cancels(count):
    """Half of `count` calls go away at random moments: the others keep their texts, and nothing is left."""
    draw = Random(5)
    bodies = [
        {"prompt": f"{number} " * draw.randint(1, 40), "seed": number, "max_tokens": draw.randint(1, 120),
         "n": draw.randint(1, 2), "temperature": draw.choice([0.7, 1.5]), "stream": draw.random() < 0.5}
        for number in range(count)
    ]  # fmt: skip
    gone = {number: draw.uniform(0, 0.3) for number in draw.sample(range(count), count // 2)}

    def texts(client):
        if client.scope["stream"]:
            parts = [json.loads(line[6:]) for line in client.body.decode().split("\n\n")[:-2]]
            choices = [part["choices"][0] for part in parts]
            return ["".join(one["text"] for one in choices if one["index"] == n) for n in range(2)]
        found = [choice["text"] for choice in json.loads(client.body)["choices"]]
        return [*found, ""][:2]

    async def story(serving, app):
        async def ask(number, *, seconds=None):
            client = Client(app, bodies[number])
            client.scope["stream"] = bodies[number]["stream"]
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, client.gone.set)
            return await client.run()

        together = await asyncio.gather(*(ask(number, seconds=gone.get(number)) for number in range(count)))
        await until(lambda: idle(serving))
        kept = [number for number in range(count) if number not in gone]
        for number in kept[::5]:
            assert texts(together[number]) == texts(await ask(number))
        assert all(together[number].status == 200 for number in kept)

    scenario(story, Conditions(max_queue=1000), max_batch=8)


def test_cancels_at_random_moments_change_no_text_and_leave_nothing():
    check_cancels(60)  # tests/nightly/server has more


def test_draining_waits_for_running_calls():
    async def story(serving, app):
        _, task = await begun(serving, app, LONG)
        await app.models.drain()
        assert (await task).status == 200

    scenario(story, Conditions(shutdown_timeout=60.0))


def test_a_waiting_stream_is_kept_open_with_comments():
    async def story(serving, app):
        running = Client(app, {**LONG, "stream": True, "max_tokens": 5})
        original = serving.engine._runner.forward

        def slow(plan):
            time.sleep(0.05)
            return original(plan)

        serving.engine._runner.forward = slow
        await running.run()
        assert b": ping\n\n" in running.body

    scenario(story, Conditions(ping=0.01))
