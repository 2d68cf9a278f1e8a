"""Schemas of the kinds that programs exchange, written out, each with instances: (schema, good, bad)."""

from __future__ import annotations

from typing import Any

__all__ = ["BY_HAND"]

INT, STR, FLAG, NUM, NULL = ({"type": kind} for kind in ("integer", "string", "boolean", "number", "null"))


def _object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return _object(properties, *required, additionalProperties=False, **more)


def _list(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


PERSON = _closed({"name": {**STR, "minLength": 1}, "age": {**INT, "minimum": 0, "maximum": 150}, "email": {**STR, "format": "email"}}, "name", "age")
ADDRESS = _closed(
    {"street": STR, "city": STR, "zip": {**STR, "pattern": r"^\d{5}$"}, "country": {**STR, "pattern": "^[A-Z]{2}$"}},
    *("street", "city", "country"),
)
MONEY = _closed({"amount": {**NUM, "minimum": 0, "multipleOf": 0.01}, "currency": {"enum": ["EUR", "USD", "GBP"]}}, "amount", "currency")
INVOICE = _object(
    {
        "number": {**STR, "pattern": "^INV-[0-9]{6}$"},
        "date": {**STR, "format": "date"},
        "lines": _list(_closed({"text": STR, "count": {**INT, "minimum": 1}, "price": _ref("money")}, "text", "count", "price"), minItems=1),
        "to": _ref("address"),
    },
    *("number", "date", "lines"),
    **{"$defs": {"money": MONEY, "address": ADDRESS}},
)
LINE = {"text": "a", "count": 1, "price": {"amount": 9.99, "currency": "EUR"}}
BILL = {"number": "INV-000001", "date": "2024-02-29", "lines": [LINE]}
POSITION = {"type": "array", "items": NUM, "minItems": 2, "maxItems": 3}
GEOMETRY = {
    "oneOf": [
        _object({"type": {"const": "Point"}, "coordinates": POSITION}, "type", "coordinates"),
        _object({"type": {"const": "LineString"}, "coordinates": _list(POSITION, minItems=2)}, "type", "coordinates"),
        _object({"type": {"const": "Polygon"}, "coordinates": _list(_list(POSITION, minItems=4))}, "type", "coordinates"),
    ]
}
PATCH = _list(
    {
        "oneOf": [
            _closed({"op": {"enum": ["add", "replace", "test"]}, "path": {**STR, "format": "json-pointer"}, "value": {}}, "op", "path", "value"),
            _closed({"op": {"const": "remove"}, "path": {**STR, "format": "json-pointer"}}, "op", "path"),
            _closed({"op": {"enum": ["move", "copy"]}, "path": STR, "from": STR}, "op", "path", "from"),
        ]
    }
)
PACKAGE = _object(
    {
        "name": {**STR, "pattern": "^(@[a-z0-9-]+/)?[a-z0-9._-]+$", "maxLength": 214},
        "version": {**STR, "pattern": r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$"},
        "private": FLAG,
        "scripts": {"type": "object", "additionalProperties": STR},
        "dependencies": _ref("deps"),
        "devDependencies": _ref("deps"),
        "files": _list(STR),
        "author": {"anyOf": [STR, _object({"name": STR, "url": {**STR, "format": "uri"}}, "name")]},
    },
    *("name", "version"),
    **{"$defs": {"deps": {"type": "object", "additionalProperties": STR}}},
)
COMPOSE = _object(
    {
        "services": {
            "type": "object",
            "patternProperties": {"^[a-zA-Z0-9._-]+$": _ref("service")},
            "additionalProperties": False,
        },
        "volumes": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    },
    "services",
    **{
        "$defs": {
            "service": _closed(
                {
                    "image": STR,
                    "ports": _list({"anyOf": [{**INT, "minimum": 1}, {**STR, "pattern": "^[0-9]+(:[0-9]+)?$"}]}),
                    "environment": {"oneOf": [_list(STR), {"type": "object", "additionalProperties": {"type": ["string", "number", "null"]}}]},
                    "restart": {"enum": ["no", "always", "on-failure"]},
                }
            )
        }
    },
)
FILTER = {
    "$ref": "#/$defs/expr",
    "$defs": {
        "expr": {"anyOf": [_ref("and"), _ref("not"), _ref("test")]},
        "and": _closed({"and": _list(_ref("expr"), minItems=1)}, "and"),
        "not": _closed({"not": _ref("expr")}, "not"),
        "test": _closed({"field": STR, "op": {"enum": ["=", "<", ">"]}, "value": {"type": ["string", "number"]}}, "field", "op", "value"),
    },
}
TEST = {"field": "a", "op": "<", "value": 1}
CALL = {
    "oneOf": [
        _closed({"name": {"const": "get_weather"}, "arguments": _closed({"city": STR, "unit": {"enum": ["c", "f"]}}, "city")}, "name", "arguments"),
        _closed({"name": {"const": "search"}, "arguments": _closed({"query": {**STR, "minLength": 1}, "top": {**INT, "minimum": 1, "maximum": 20}}, "query")}, "name", "arguments"),
    ]
}
MESSAGE = _object(
    {
        "role": {"enum": ["system", "user", "assistant"]},
        "content": {"anyOf": [STR, _list({"oneOf": [_closed({"type": {"const": "text"}, "text": STR}, "type", "text"), _closed({"type": {"const": "image"}, "url": {**STR, "format": "uri"}}, "type", "url")]})]},
    },
    *("role", "content"),
)
ENTITY = {"allOf": [_ref("base"), _object({"title": STR, "pages": {**INT, "minimum": 1}}, "title")], "$defs": {"base": _object({"id": {**STR, "format": "uuid"}, "created": {**STR, "format": "date-time"}}, "id")}}  # fmt: skip
UUID = "123e4567-e89b-12d3-a456-426614174000"
PAYMENT = _object(
    {"method": {"enum": ["card", "iban"]}, "card": {**STR, "pattern": "^[0-9]{16}$"}, "iban": {**STR, "pattern": "^[A-Z]{2}[0-9A-Z]{13,32}$"}},
    "method",
    allOf=[
        {"if": {"properties": {"method": {"const": "card"}}}, "then": {"required": ["card"]}},
        {"if": {"properties": {"method": {"const": "iban"}}}, "then": {"required": ["iban"]}},
    ],
)
MENU = {"$ref": "#/$defs/item", "$defs": {"item": _closed({"label": STR, "href": {**STR, "format": "uri-reference"}, "children": _list(_ref("item"), maxItems=4)}, "label")}}  # fmt: skip
POD = _object(
    {
        "apiVersion": {"const": "v1"},
        "kind": {"const": "Pod"},
        "metadata": _object({"name": {**STR, "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 63}, "labels": {"type": "object", "additionalProperties": STR}}, "name"),
        "spec": _object({"containers": _list(_object({"name": STR, "image": STR, "args": _list(STR)}, "name", "image"), minItems=1)}, "containers"),
    },
    *("apiVersion", "kind", "metadata", "spec"),
)
PODS = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
MATRIX = _list(_list(NUM, minItems=2, maxItems=2), minItems=2, maxItems=2)
PAGE = _object({"items": _list(PERSON), "next": {"type": ["string", "null"], "format": "uri"}, "total": {**INT, "minimum": 0}}, "items", "total")
ANN = {"name": "Ann", "age": 3}
SURVEY = _object({"answers": {"type": "object", "patternProperties": {"^q[0-9]+$": {"type": ["string", "integer", "boolean"]}}, "additionalProperties": False, "minProperties": 1}}, "answers")  # fmt: skip
ACCESS = _object({"roles": _list({"enum": ["read", "write", "admin"]}, uniqueItems=True, minItems=1), "until": {**STR, "format": "date"}}, "roles")
LOG = _object({"level": {"enum": ["debug", "info", "error"]}, "at": {**STR, "format": "date-time"}, "text": {**STR, "maxLength": 200}, "data": {}}, "level", "text")
PROBLEM = _object({"type": {**STR, "format": "uri-reference"}, "title": STR, "status": {**INT, "minimum": 100, "maximum": 599}, "detail": STR}, "title", "status")
EXTRACT = _closed({"people": _list(_closed({"name": STR, "role": {"type": ["string", "null"]}}, "name", "role")), "summary": {**STR, "maxLength": 280}, "score": {**NUM, "minimum": 0, "maximum": 1}}, "people", "summary", "score")  # fmt: skip
TRANSLATION = {"type": "object", "propertyNames": {"pattern": "^[a-z]{2}(-[A-Z]{2})?$"}, "additionalProperties": {**STR, "minLength": 1}}
SHAPE = {"anyOf": [_closed({"radius": {**NUM, "exclusiveMinimum": 0}}, "radius"), _closed({"width": NUM, "height": NUM}, "width", "height")]}
FLAGS = {"type": "object", "additionalProperties": {"oneOf": [FLAG, _closed({"percent": {**INT, "minimum": 0, "maximum": 100}}, "percent")]}}
PASSWORD = _object({"user": STR, "password": {**STR, "pattern": "^(?=.*[a-z])(?=.*[0-9]).{8,}$"}}, "user", "password")
CRON = _object({"at": {**STR, "pattern": r"^(\*|[0-9,/-]+)( (\*|[0-9,/-]+)){4}$"}, "run": STR}, "at", "run")

Made = tuple[Any, list[Any], list[Any]]
_CASES: dict[str, Made] = {
    "person": (PERSON, [ANN, {"name": "é", "age": 150, "email": "a@b.de"}], [{"name": "", "age": 3}, {"name": "a"}, {**ANN, "x": 1}]),
    "address": (ADDRESS, [{"street": "A 1", "city": "B", "zip": "12345", "country": "DE"}, {"street": "", "city": "", "country": "US"}], [{"street": "A", "city": "B", "country": "de"}, {"city": "B"}]),
    "money": (MONEY, [{"amount": 1.25, "currency": "EUR"}, {"amount": 0, "currency": "USD"}], [{"amount": 1.255, "currency": "EUR"}, {"amount": -1, "currency": "EUR"}]),
    "invoice": (INVOICE, [BILL, {**BILL, "lines": [LINE, LINE]}], [{**BILL, "lines": []}, {**BILL, "number": "1"}, {**BILL, "to": {}}]),
    "geometry": (GEOMETRY, [{"type": "Point", "coordinates": [1, 2]}, {"type": "LineString", "coordinates": [[1, 2], [3, 4.5]]}], [{"type": "Point", "coordinates": [[1, 2]]}, {"type": "Circle", "coordinates": [1, 2]}]),
    "patch": (PATCH, [[{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}], []], [[{"op": "remove", "path": "/b", "value": 1}], [{"op": "add", "path": "/a"}]]),
    "package": (PACKAGE, [{"name": "a", "version": "1.0.0"}, {"name": "@x/y", "version": "1.2.3-rc.1", "scripts": {"t": "u"}, "author": {"name": "A"}}], [{"name": "A", "version": "1.0.0"}, {"name": "a", "version": "1"}, {"name": "a", "version": "1.0.0", "author": 3}]),
    "compose": (COMPOSE, [{"services": {"web": {"image": "a", "ports": [80, "80:90"]}}}, {"services": {"b": {"environment": {"A": None}}}, "volumes": {"v": None}}], [{"services": {"web": {"imag": "a"}}}, {"services": {"a b": {}}}, {}]),
    "filter": (FILTER, [TEST, {"and": [TEST, {"not": TEST}]}], [{"and": []}, {"not": [TEST]}, {"field": "a"}]),
    "call": (CALL, [{"name": "get_weather", "arguments": {"city": "Bonn"}}, {"name": "search", "arguments": {"query": "x", "top": 3}}], [{"name": "search", "arguments": {"city": "Bonn"}}, {"name": "search", "arguments": {"query": "x", "top": 99}}]),
    "message": (MESSAGE, [{"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}], [{"role": "bot", "content": "hi"}, {"role": "user", "content": [{"type": "text"}]}]),
    "entity": (ENTITY, [{"id": UUID, "title": "A"}, {"id": UUID, "created": "2024-02-29T00:00:00Z", "title": "A", "pages": 3}], [{"id": UUID}, {"title": "A"}, {"id": UUID, "title": "A", "pages": 0}]),
    "payment": (PAYMENT, [{"method": "card", "card": "1234567812345678"}, {"method": "iban", "iban": "DE89370400440532013000"}], [{"method": "card"}, {"method": "iban", "card": "1234567812345678"}]),
    "menu": (MENU, [{"label": "a"}, {"label": "a", "href": "/x", "children": [{"label": "b"}]}], [{"label": "a", "children": [{}]}, {"label": "a", "children": [{"label": "b"}] * 5}]),
    "pod": (POD, [PODS, {**PODS, "metadata": {"name": "a-b", "labels": {"x": "y"}}}], [{**PODS, "kind": "Service"}, {**PODS, "metadata": {"name": "A"}}, {**PODS, "spec": {"containers": []}}]),
    "matrix": (MATRIX, [[[1, 2], [3, 4]], [[0.5, 1], [1, 0]]], [[[1, 2]], [[1, 2], [3]], [[1, 2], [3, "a"]]]),
    "page": (PAGE, [{"items": [], "total": 0}, {"items": [ANN], "next": None, "total": 1}], [{"items": [{}], "total": 0}, {"items": [], "total": -1}]),
    "survey": (SURVEY, [{"answers": {"q1": "x", "q2": True}}, {"answers": {"q10": 3}}], [{"answers": {}}, {"answers": {"x": 1}}]),
    "access": (ACCESS, [{"roles": ["read", "admin"]}, {"roles": ["write"], "until": "2024-02-29"}], [{"roles": []}, {"roles": ["read", "read"]}]),
    "log": (LOG, [{"level": "info", "text": "a\nb"}, {"level": "error", "text": "", "data": {"x": [1]}}], [{"level": "warn", "text": ""}, {"level": "info", "text": "a" * 201}]),
    "problem": (PROBLEM, [{"title": "a", "status": 404}, {"type": "/e", "title": "a", "status": 500}], [{"title": "a", "status": 99}, {"title": "a"}]),
    "extract": (EXTRACT, [{"people": [{"name": "A", "role": None}], "summary": "x", "score": 0.5}, {"people": [], "summary": "", "score": 1}], [{"people": [{"name": "A"}], "summary": "x", "score": 0.5}, {"people": [], "summary": "", "score": 1.5}]),
    "translation": (TRANSLATION, [{"en": "a", "de-AT": "b"}, {}], [{"EN": "a"}, {"en": ""}]),
    "shape": (SHAPE, [{"radius": 1.5}, {"width": 1, "height": 2}], [{"radius": 0}, {"width": 1}]),
    "flags": (FLAGS, [{"a": True, "b": {"percent": 50}}, {}], [{"a": "on"}, {"a": {"percent": 101}}]),
    "password": (PASSWORD, [{"user": "a", "password": "abcdefg1"}, {"user": "a", "password": "12345678a"}], [{"user": "a", "password": "abcdefgh"}, {"user": "a", "password": "a1"}]),
    "cron": (CRON, [{"at": "* * * * *", "run": "x"}, {"at": "0 1,2 * 1-5 */2", "run": "x"}], [{"at": "* * *", "run": "x"}, {"at": "a b c d e", "run": "x"}]),
}  # fmt: skip
BY_HAND: list[tuple[str, Made]] = list(_CASES.items())
