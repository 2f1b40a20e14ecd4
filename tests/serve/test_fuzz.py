"""Mutated requests: whatever is sent, the reply is an answer or one line that is the sender's."""

import json
import random

import pytest

from hma.serve.requests import SUMMARIES

COUNT = 100
STRANGE = (
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63),
    10**400, 0.5, -0.0, 1e308, 1e-320, float("inf"), float("-inf"), float("nan"), "", " ", "0",
    "NaN", "inf", "1e999", "up", "Oslo", "e\u0301", "\x00", "\ud800", "\u202e", "a" * 5000,
    "1" * 5000, "2020-01-01", "a == 1", "a > ", "' == '", "town == Oslo and", [], [[]], [None],
    [2**63], {}, {"": 1}, {"a": {"b": []}}, {"up": 1}, ["up"], [{}], ["data:,", "!"],
)  # fmt: skip
NAMES = (
    "rows", "texts", "images", "places", "labels", "ids", "where", "class", "yes", "note", "top",
    "version", "now", "new_classes", "", "a", "\x00", "constructor",
)  # fmt: skip
PATHS = [path for method, path in SUMMARIES if method == "post"]


def mutate(draw, value, depth=0):
    """Return a value like ``value`` with something strange in it."""
    if draw.random() < 0.25 or depth > 4:
        return draw.choice(STRANGE)
    if isinstance(value, dict) and value:
        found, name = dict(value), draw.choice(list(value))
        kind = draw.random()
        if kind < 0.15:
            del found[name]
        elif kind < 0.3:
            found[draw.choice(NAMES)] = draw.choice(STRANGE)
        else:
            found[name] = mutate(draw, value[name], depth + 1)
        return found
    if isinstance(value, list) and value:
        place, kind = draw.randrange(len(value)), draw.random()
        if kind < 0.15:
            return value * draw.choice((0, 2, 300))
        if kind < 0.25:
            return [*value, draw.choice(STRANGE)]
        return [*value[:place], mutate(draw, value[place], depth + 1), *value[place + 1 :]]
    return draw.choice(STRANGE)


def garble(draw, data):
    """Return bytes like ``data`` that may be no JSON."""
    place, kind = draw.randrange(len(data) + 1), draw.random()
    if kind < 0.7:
        return data
    if kind < 0.8:
        return data[:place]
    if kind < 0.9:
        return data[:place] + bytes(draw.randrange(256) for _ in range(3)) + data[place:]
    return data[:place] + draw.choice((b"[", b'{"a":', b"[[[{")) * 3000 + data[place:]


def query(draw):
    """Return a path with strange fields."""
    path = draw.choice(("/memory", "/memory", "/versions", "/run", "/health", "/predict", "/%ff"))
    names = ("class", "first", "count", "x", "%00")
    values = ("", "1", "-1", "1e3", "up", "%ff", "%F0%9F", "9" * 400, "0x1", "٣", "a+b")
    fields = [f"{draw.choice(names)}={draw.choice(values)}" for _ in range(draw.randrange(4))]
    return f"{path}?{'&'.join(fields)}"


@pytest.mark.parametrize("seed", range(3))
def test_no_request_makes_the_server_fail(client, rows, seed):
    draw = random.Random(seed)
    whole = {
        "/predict": [{"rows": rows[:2]}, {"places": [0, 3]}],
        "/explain": [{"rows": rows[:1], "top": 3}, {"places": [2]}],
        "/remember": [
            {"rows": rows[2:4], "labels": ["odd", "up"], "new_classes": True, "note": "n"},
            {"places": [5], "labels": ["down"]},
        ],
        "/forget": [{"ids": [1, 2]}, {"where": "town == Oslo and a > 2.5"}, {"class": "up"}],
        "/restore": [{"version": 0, "now": 1}, {"version": 1}],
    }
    for _ in range(COUNT):
        if draw.random() < 0.1:
            method, path, content, headers = "GET", query(draw), None, {}
        else:
            method, path = draw.choice(("POST",) * 19 + ("PUT",)), draw.choice(PATHS)
            body = mutate(draw, draw.choice(whole[path]))
            content = garble(draw, json.dumps(body).encode())
            kind = "application/json" if draw.random() < 0.97 else draw.choice(("", "a/b", "é"))
            headers = {"content-type": kind.encode()}
        reply = client.request(method, path, content=content, headers=headers)
        about = f"{method} {path} {content!r:.2000} -> {reply.status_code} {reply.text[:500]}"
        assert reply.status_code < 500, about
        values = reply.json()
        if reply.status_code != 200:
            assert list(values) == ["error"], about
            assert "\n" not in values["error"], about
            assert 0 < len(values["error"]) < 2100, about
    assert client.post("/predict", json={"rows": rows}).status_code == 200
