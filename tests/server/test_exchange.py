"""What goes wrong between a client and the server: full queues, gone clients, slow readers, a dead engine."""

import asyncio
import gc
import json
import subprocess
import sys
import threading

import pytest
import torch

from gencli.server.access import Bodies, CallLimits
from gencli.server.asgi_app import make_app
from gencli.server.served_models import Models
from gencli.server.serving import Conditions
from gencli.server.wire_fields import ApiError
from processors.grammar.compile_guards import DaemonPool
from tests.server.conftest import idle, serve

LONG = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "seed": 1}


class Client:
    """One request to the app as ASGI messages; `gone` is set when the client goes away."""

    def __init__(self, app, body, path="/v1/completions", parts=None, **headers):
        self.app, self.sent, self.gone = app, [], asyncio.Event()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._parts = list(parts or [content])
        given = {"host": "localhost", "content-type": "application/json", **headers}
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "scheme": "http", "headers": [(k.encode(), v.encode()) for k, v in given.items()],
        }  # fmt: skip

    async def receive(self):
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def run(self):
        await self.app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def error(self):
        return json.loads(self.body)["error"]


def scenario(story, conditions=None, **settings):
    """Run `story(serving, app)` with a server on the fake model, in one event loop."""
    with serve(conditions, **settings) as outer:
        serving = outer.serving

    async def run():
        serving._quick = serving._slow = type(serving._quick)(2)
        models = Models(serving)
        app = make_app(models)
        app.models = models
        models.start()
        try:
            return await asyncio.wait_for(story(serving, app), 60)
        finally:
            models.stop()

    return asyncio.run(run())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


async def begun(serving, app, body):
    """A client whose request is in the engine, and its task."""
    client = Client(app, body)
    task = asyncio.create_task(client.run())
    await until(lambda: serving.thread.num_open)
    return client, task


def test_a_client_that_goes_away_ends_its_work():
    async def story(serving, app):
        for stream in (True, False):
            counts = []
            serving.thread.on_event = counts.append
            client = Client(app, {**LONG, "stream": stream, "n": 2})
            task = asyncio.create_task(client.run())
            while len(counts) <= 4:
                await asyncio.sleep(0.005)
            client.gone.set()
            await task
            await until(lambda: idle(serving))
            assert len(counts) < 1000, stream
            again = await Client(app, {**LONG, "max_tokens": 3}).run()
            assert again.status == 200, stream

    scenario(story)


def test_a_full_server_answers_429_before_any_work_and_counts_samples():
    async def story(serving, app):
        running, task = await begun(serving, app, {**LONG, "n": 2})
        refused = await Client(app, b"this is not JSON, and nobody reads it").run()
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        assert (b"retry-after", b"1") in refused.sent[0]["headers"]
        running.gone.set()
        await task
        await until(lambda: idle(serving))
        running, task = await begun(serving, app, LONG)
        assert (await Client(app, {**LONG, "n": 2}).run()).status == 429
        running.gone.set()
        await task
        # Alone, a call may be larger than the queue.
        assert (await Client(app, {**LONG, "n": 9, "max_tokens": 2}).run()).status == 200

    scenario(story, Conditions(max_queue=0), max_batch=2)


def test_a_call_that_waits_too_long_is_a_504():
    async def story(serving, app):
        running, task = await begun(serving, app, LONG)
        late = await Client(app, {**LONG, "max_time": 1e-6}).run()
        assert (late.status, late.error["type"]) == (504, "timeout_error")
        running.gone.set()
        await task

    scenario(story, max_batch=1)


def test_draining_answers_503_and_ends_streams_with_an_error():
    async def story(serving, app):
        running = Client(app, {**LONG, "stream": True})
        task = asyncio.create_task(running.run())
        await until(lambda: len(running.sent) > 2)
        drain = asyncio.create_task(app.models.drain())
        await until(lambda: app.models.state == "draining")
        refused = await Client(app, LONG).run()
        assert (refused.status, refused.error["code"]) == (503, "shutdown")
        await drain
        await task
        *_, error, done = running.body.decode().strip().split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "shutdown"
        assert done == "data: [DONE]"

    scenario(story, Conditions(shutdown_timeout=0.0), max_batch=1)


def test_a_dead_engine_is_said_by_health_and_every_call():
    async def story(serving, app):
        def broken(plan):
            raise RuntimeError("the device is gone")

        serving.engine._runner.forward = broken
        failed = await Client(app, LONG).run()
        assert (failed.status, failed.error["code"]) == (503, "dead")
        assert app.models.state == "dead"
        assert (await Client(app, LONG).run()).status == 503

    scenario(story)


def test_a_lost_gpu_is_said_without_a_traceback(caplog):
    async def story(serving, app):
        def lost(plan):
            raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors ...")

        serving.engine._runner.forward = lost
        for _ in range(2):
            failed = await Client(app, LONG).run()
            assert (failed.status, failed.error["code"]) == (503, "dead")
            assert "The GPU has failed: CUDA error: unspecified launch failure." in failed.error["message"]
        assert app.models.state == "dead"

    scenario(story)
    (said,) = [record for record in caplog.records if record.name.startswith("gencli")]
    assert said.exc_info is None
    assert "--device cpu" in said.getMessage()


def test_a_slow_reader_is_cut_off():
    async def story(serving, app):
        client = Client(app, {**LONG, "stream": True})

        async def never(message):
            await asyncio.Event().wait()

        client.send = never
        await client.run()
        await until(lambda: idle(serving))

    scenario(story, Conditions(write_timeout=0.05))


def test_a_body_is_limited_however_it_comes():
    async def story(serving, app):
        parts = await Client(app, b"", parts=[b"{" + b" " * 900, b" " * 900]).run()
        said = await Client(app, b"{}", **{"content-length": "5000"}).run()
        assert {parts.status, said.status} == {413}
        assert parts.error["code"] == "body_too_large"

    scenario(story, Conditions(limits=CallLimits(body=1000)))


def test_a_refused_call_leaves_nothing_for_the_collector():
    """An error and its traceback in a cycle would keep the body, of megabytes, until a collection."""

    async def story(serving, app):
        gc.collect()
        gc.disable()
        try:
            for body in ({**LONG, "prompt": [10**9]}, {**LONG, "nope": 1}, {**LONG, "stop_regex": "("}):
                assert (await Client(app, body).run()).status == 400
            return [each for each in gc.get_objects() if type(each) is ApiError]
        finally:
            gc.enable()

    assert scenario(story) == []


def test_bodies_that_are_read_are_bounded_together():
    bodies = Bodies(max_held=300_000)
    with bodies.room() as one, bodies.room() as other:
        one(200_000)
        other(60_000)  # small bodies are free
        with pytest.raises(ApiError, match="too many large bodies"):
            other(300_000)
    assert bodies.held == 0


def test_results_and_errors_reach_who_waits():
    pool = DaemonPool(2)
    assert [pool.submit(pow, 2, number).result(20) for number in range(5)] == [1, 2, 4, 8, 16]
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result(20)
    pool.shutdown()


def test_cancelled_work_is_not_done():
    pool, go, done = DaemonPool(1), threading.Event(), []
    first = pool.submit(go.wait, 20)
    second = pool.submit(done.append, 1)
    assert second.cancel()
    go.set()
    assert first.result(20)
    pool.submit(done.append, 2).result(20)
    assert done == [2]
    pool.shutdown()


def test_the_process_ends_while_a_thread_works():
    code = (
        "import time; from processors.grammar.compile_guards import DaemonPool; "
        "DaemonPool(1).submit(time.sleep, 600); print('over')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "over\n"
