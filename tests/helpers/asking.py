"""Requests to a server that may die meanwhile."""

import json
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

__all__ = ["ask"]


def ask(url, body, headers=None):
    """Return the texts of a completion, and the errors before: it is sent again, as OpenAI's clients do."""
    given = {"content-type": "application/json", **(headers or {})}
    failures = []
    while len(failures) < 50:
        try:
            with urlopen(Request(f"{url}/v1/completions", json.dumps(body).encode(), given)) as reply:
                return [choice["text"] for choice in json.load(reply)["choices"]], failures
        except HTTPError as error:
            if error.code < 500:
                raise AssertionError(error.read()) from error
            failures.append((error.code, error.read().decode()))
        except (OSError, HTTPException) as error:  # nobody listens, or the reply is cut
            failures.append((0, type(error).__name__))
    raise AssertionError(failures)
