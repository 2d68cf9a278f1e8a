"""The server before its models are loaded: the page, the version, and status 503 for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from gencli import __version__
from gencli.server.access import AccessRules, App, Guard
from gencli.server.page import page
from gencli.server.wire_fields import ApiError


def loading_app(rules: AccessRules) -> App:
    """Return the app of a server while its models are loaded."""
    error = ApiError(503, "The server is loading its models.", code="loading")

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "loading"}, 503, error.headers)

    async def later(request: Request, raised: Exception) -> Response:
        return error_response(error)

    handlers: Mapping[Any, Any] = {HTTPException: later}
    routes = [*static_routes(), Route("/health", health)]
    return Guard(Starlette(routes=routes, exception_handlers=handlers), rules)


def static_routes() -> list[Route]:
    """Return the routes that need no model."""

    async def start(request: Request) -> Response:
        content, headers = page()
        return HTMLResponse(content, headers=headers)

    async def version(request: Request) -> Response:
        return JSONResponse({"version": __version__})

    return [Route("/", start), Route("/version", version)]


def error_response(error: ApiError) -> Response:
    """Return an error as a reply."""
    return JSONResponse(error.body, error.status, headers=dict(error.headers))
