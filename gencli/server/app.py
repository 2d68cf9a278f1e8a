"""The routes of the server as an ASGI app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gencli import __version__
from gencli.server.body import Disconnected, parse_body, read_body
from gencli.server.exchange import Generate
from gencli.server.info import chain_view, detokenize, props, tokenize, tokenizer_info
from gencli.server.page import page
from gencli.server.security import App, Guard
from gencli.server.serving import Serving
from gencli.server.wire.errors import ApiError

__all__ = ["make_app"]

_Answer = Callable[[Serving, Any], Any]


def make_app(serving: Serving) -> App:
    """Return the app. The engine's thread starts and ends with the app's lifespan."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        serving.start()
        try:
            yield
        finally:
            serving.stop()

    routes = [
        Route("/v1/chat/completions", Generate(serving, "chat"), methods=["POST"]),
        Route("/v1/completions", Generate(serving, "completions"), methods=["POST"]),
        Route("/v1/responses", Generate(serving, "responses"), methods=["POST"]),
        *_get(serving),
        *_post(serving),
    ]
    handlers: Mapping[Any, Any] = {
        HTTPException: _http_error,
        ApiError: _api_error,
        Disconnected: _gone,
        Exception: _any_error,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return Guard(app, serving.conditions.rules, lambda status: serving.metrics.replies.update([status]))


def _get(serving: Serving) -> list[Route]:
    model = {
        "id": serving.name,
        "object": "model",
        "created": int(serving.created),
        "owned_by": "gencli",
        "root": serving.name,
        "parent": None,
        "max_model_len": serving.spec.context,
    }

    async def health(request: Request) -> Response:
        state = serving.state
        status = 200 if state == "ready" else 503
        return JSONResponse({"status": "ok" if status == 200 else state}, status)

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        name = request.path_params["name"]
        if name != serving.name:
            raise ApiError(404, f"There is no model {name[:200]!r}.", param="model", code="model_not_found")
        return JSONResponse(model)

    async def metrics(request: Request) -> Response:
        text = serving.metrics.text(serving.name, serving.gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def start(request: Request) -> Response:
        content, headers = page()
        return HTMLResponse(content, headers=headers)

    async def version(request: Request) -> Response:
        return JSONResponse({"version": __version__})

    return [
        Route("/", start),
        Route("/health", health),
        Route("/version", version),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
        Route("/props", _answering(serving, props)),
        Route("/tokenizer_info", _answering(serving, tokenizer_info)),
    ]


def _post(serving: Serving) -> list[Route]:
    return [
        Route(path, _answering(serving, answer, has_body=True), methods=["POST"])
        for path, answer in (
            ("/tokenize", tokenize),
            ("/v1/tokenize", tokenize),
            ("/detokenize", detokenize),
            ("/v1/detokenize", detokenize),
            ("/v1/chain", chain_view),
        )
    ]


def _answering(
    serving: Serving, answer: _Answer, *, has_body: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that answers with `answer(serving, body)`, computed beside the event loop."""

    async def endpoint(request: Request) -> Response:
        with serving.admission.enter():
            limits = serving.conditions.limits
            body = await read_body(request.scope, request.receive, limits.body) if has_body else b"null"
            found = await serving.beside(lambda: answer(serving, parse_body(body)), is_slow=has_body)
        return JSONResponse(found)

    return endpoint


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:200]
    messages = {404: f"There is no route {path}.", 405: f"{path} does not take {request.method}."}
    headers = getattr(error, "headers", None)
    said = ApiError(status, messages.get(status, "The request failed."), code="no_route", headers=headers)
    return _response(said)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _response(error)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _any_error(request: Request, error: Exception) -> Response:
    return _response(ApiError(500, "The server failed on this request.", code="internal_error"))


def _response(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, headers=dict(error.headers))
