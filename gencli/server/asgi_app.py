"""The routes of the server as an ASGI app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gencli.server.access import App, Disconnected, Guard
from gencli.server.exchange import (
    Generate,
    chain_view,
    detokenize,
    model_card,
    props,
    tokenize,
    tokenizer_info,
)
from gencli.server.opening import error_response, static_routes
from gencli.server.served_models import Models, metrics_text
from gencli.server.serving import Serving
from gencli.server.wire_fields import ApiError

_Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(models: Models) -> App:
    """Return the app. The engines' threads start and end with the app's lifespan."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        models.start()
        try:
            yield
        finally:
            models.stop()

    routes = [
        Route("/v1/chat/completions", Generate(models, "chat"), methods=["POST"]),
        Route("/v1/completions", Generate(models, "completions"), methods=["POST"]),
        Route("/v1/responses", Generate(models, "responses"), methods=["POST"]),
        *static_routes(),
        *_get(models),
        Route("/tokenize", _answering(models, tokenize), methods=["POST"]),
        Route("/v1/tokenize", _answering(models, tokenize), methods=["POST"]),
        Route("/detokenize", _answering(models, detokenize), methods=["POST"]),
        Route("/v1/detokenize", _answering(models, detokenize), methods=["POST"]),
        Route("/v1/chain", _answering(models, chain_view), methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = dict.fromkeys((HTTPException, ApiError, Disconnected, Exception), _error)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # a reply contains no address that the client sent
    return Guard(app, models.conditions.rules, lambda status: models.replies.update([status]))


def _get(models: Models) -> list[Route]:
    async def health(request: Request) -> Response:
        state = models.state
        status = 200 if state == "ready" else 503
        return JSONResponse({"status": "ok" if status == 200 else state}, status)

    async def all_models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model_card(serving) for serving in models]})

    async def one_model(request: Request) -> Response:
        return JSONResponse(model_card(models.get(request.path_params["name"])))

    async def metrics(request: Request) -> Response:
        of_models = (serving.metrics.families(serving.name, serving.gauges) for serving in models)
        text = metrics_text(models.replies, of_models)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return [
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/v1/models", all_models),
        Route("/v1/models/{name:path}", one_model),
        Route("/props", _asking(models, props)),
        Route("/tokenizer_info", _asking(models, tokenizer_info)),
    ]


def _asking(models: Models, answer: Callable[[Serving], Any]) -> _Endpoint:
    # The model is named in the query.
    async def endpoint(request: Request) -> Response:
        serving = models.get(request.query_params.get("model"))
        with models.enter():
            return JSONResponse(await serving.beside(lambda: answer(serving)))

    return endpoint


def _answering(models: Models, answer: Callable[[Serving, Any], Any]) -> _Endpoint:
    # The model is named in the body.
    async def endpoint(request: Request) -> Response:
        async with models.body(request.scope, request.receive) as body:
            serving, value = await models.read(body, lambda serving, value: value)
            # A chain or a conversation's tools may have grammars; tokenizing a text must not wait for those.
            is_slow = answer is chain_view or (isinstance(value, Mapping) and "messages" in value)
            return JSONResponse(await serving.beside(lambda: answer(serving, value), is_slow=is_slow))

    return endpoint


async def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, Disconnected):
        return Response(status_code=499)
    if isinstance(error, HTTPException):
        path = request.url.path[:200]
        messages = {404: f"There is no route {path}.", 405: f"{path} does not take {request.method}."}
        message = messages.get(error.status_code, "The request failed.")
        error = ApiError(error.status_code, message, code="no_route", headers=error.headers)
    elif not isinstance(error, ApiError):
        error = ApiError(500, "The server failed on this request.", code="internal_error")
    return error_response(error)
