"""What cannot be answered gives a 4xx with one line, and the server goes on answering."""

import json

import pytest
from http_replies import JSON, line_of
from starlette.testclient import TestClient

from hma.errors import UserError
from hma.serve.app import app_of, expect_guarded
from hma.serve.requests import FIELDS, MOST_BYTES, MOST_ROWS, SUMMARIES
from hma.serve.server import listening


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/predict", b"{", "not valid: Expecting property name"),
        ("/predict", b"", "not valid: Expecting value"),
        ("/predict", b"\xff", "it is not UTF-8 at byte 0"),
        ("/predict", b'{"rows": ' + b"[" * 5000, "not valid: "),
        ("/predict", b"[]", "it must be an object, got"),
        ("/predict", b"{}", "give one of 'rows', 'places', as this run has rows of kind 'table'"),
        ("/predict", b'{"rows": []}', f"rows must hold from 1 to {MOST_ROWS} rows, got 0"),
        ("/predict", b'{"rows": [[1]]}', "rows"),
        ("/predict", b'{"rows": [{"a": [1]}]}', "rows"),
        ("/predict", b'{"texts": ["a"]}', "give one of 'rows', 'places'"),
        ("/predict", b'{"rows": [{"a": 1}]}', "it lacks 'b', 'c', 'town'"),
        ("/predict", b'{"row": []}', "/predict takes 'rows', 'texts', 'images', 'places', got"),
        ("/predict", b'{"places": [52]}', "places must be from 0 to 51, got 52"),
        ("/predict", b'{"places": [-1]}', "places must be from 0 to 51, got -1"),
        ("/explain", b'{"places": [1, 2]}', "/explain takes one row, got 2"),
        ("/explain", b'{"places": [1], "top": 0}', "top must be from 1 to 100, got 0"),
        ("/remember", b'{"places": [1]}', "it lacks labels"),
        ("/remember", b'{"places": [1], "labels": []}', "one label for each of 1 rows, got 0"),
        ("/remember", b'{"places": [1], "labels": [""]}', "labels[0] is empty"),
        ("/remember", b'{"places": [1], "labels": [{"up": 1}]}', "labels[0] must be one value"),
        ("/remember", b'{"places": [1], "labels": ["new"]}', 'send "new_classes": true to teach'),
        ("/forget", b"{}", 'give one of "ids", "where" and "class"'),
        ("/forget", b'{"ids": [999]}', '"ids" names 999, which the memory does not hold'),
        ("/forget", b'{"where": "import os"}', ""),
        ("/restore", b'{"version": 7}', "there is no version 7 of the memory"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_one_line(client, path, body, said):
    assert said in line_of(client.post(path, content=body, headers=JSON), 400)


def test_a_cell_that_is_no_number_names_its_column(client, rows):
    said = line_of(client.post("/predict", json={"rows": [{**rows[0], "b": "tall"}]}), 400)
    assert "column 'b' has 'tall'" in said
    assert "Infinity" not in line_of(
        client.post("/predict", content=json.dumps({"rows": [{**rows[0], "b": float("inf")}]}),
                    headers=JSON), 400)  # fmt: skip


def test_too_much_is_refused_before_it_is_read_to_the_end(client, rows):
    many = {"rows": rows * (MOST_ROWS // len(rows) + 1)}
    assert f"from 1 to {MOST_ROWS} rows" in line_of(client.post("/predict", json=many), 400)
    said = f"the body must be at most {MOST_BYTES} bytes"
    large = b" " * (MOST_BYTES + 1)
    assert said in line_of(client.post("/predict", content=large, headers=JSON), 413)
    read = []

    def parts():
        for place in range(64):
            read.append(place)
            yield b" " * 2**20

    assert said in line_of(client.post("/predict", content=parts(), headers=JSON), 413)
    assert client.get("/health").json()["status"] == "ok"


def test_forms_of_other_sites_are_refused_by_what_they_can_send(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        reply = client.post("/forget", content=b'{"ids": [0]}', headers={"content-type": kind})
        assert kind in line_of(reply, 415)
    line_of(client.post("/forget", content=b"{}"), 415)
    reply = client.get("/memory", headers={"host": "example.org:8000"})
    assert "answers to localhost alone" in line_of(reply, 403)
    assert "access-control-allow-origin" not in client.options("/predict").headers


def test_other_paths_and_methods_are_named(client):
    assert "there is nothing at /nowhere" in line_of(client.get("/nowhere"), 404)
    assert "/predict does not take GET" in line_of(client.get("/predict"), 405)
    assert "count must be from 1" in line_of(client.get("/memory?count=0"), 400)
    assert "first must be a whole number" in line_of(client.get("/memory?first=x"), 400)
    assert "/memory takes 'class', 'first'" in line_of(client.get("/memory?frist=1"), 400)
    assert "must be one of 'down', 'up'" in line_of(client.get("/memory?class=left"), 400)


def test_a_failure_of_the_server_itself_is_one_line_and_it_goes_on(client, service, monkeypatch):
    def broken(self):
        raise RuntimeError("a secret\nof the machine")

    with monkeypatch.context() as patched:
        patched.setattr(type(service), "now", broken)
        assert line_of(client.post("/predict", json={"places": [0]}), 500) == (
            "the server failed at /predict; its terminal says why"
        )
    assert client.post("/predict", json={"places": [0]}).status_code == 200


def test_a_damaged_file_of_the_run_is_named_and_is_not_the_requests_fault(client, folder):
    (folder / "memory" / "current.json").write_text("{")
    said = line_of(client.post("/predict", json={"places": [0]}), 500)
    assert "current.json is damaged" in said
    (folder / "memory" / "current.json").unlink()
    assert client.post("/predict", json={"places": [0]}).status_code == 200


def test_with_a_token_only_those_who_carry_it_are_answered(service):
    def opened(**more):
        return TestClient(app_of(service, token="s3cret"), base_url="http://a.example", **more)

    with opened() as client:
        assert client.get("/health").status_code == 200
        assert "s3cret" not in client.get("/").text
        for _, path in SUMMARIES:
            if path != "/health":
                how = client.post if path in FIELDS else client.get
                assert "a token is missing" in line_of(how(path), 401)
        reply = client.get("/run", headers={"authorization": "Bearer other"})
        assert "the token is wrong" in line_of(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
        line_of(client.get("/openapi.json"), 401)
    with opened(headers={"authorization": "Bearer s3cret"}) as client:
        assert client.get("/run").status_code == 200
        found = client.get("/openapi.json").json()
        assert found["security"] == [{"token": []}]
        assert found["paths"]["/health"]["get"]["security"] == []


def test_other_machines_need_a_token():
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1"):
        expect_guarded(host, None)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        with pytest.raises(UserError, match="needs a token: set HMA_TOKEN or give --token"):
            expect_guarded(host, None)
        expect_guarded(host, "s3cret")
    for token in ("", "two words", "naïve", "a\n"):
        with pytest.raises(UserError, match="printable ASCII without spaces"):
            expect_guarded("127.0.0.1", token)


def test_a_port_that_is_taken_is_named():
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on port {port} of 127.0.0.1"):
            listening("127.0.0.1", port)
    with pytest.raises(UserError, match="--port must be from 0 to 65535, got 70000"):
        listening("127.0.0.1", 70000)


def test_the_description_has_every_endpoint_and_its_fields(client):
    found = client.get("/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    assert "security" not in found
    for (method, path), summary in SUMMARIES.items():
        about = found["paths"][path][method]
        assert about["summary"] == summary
        if path in FIELDS:
            schema = about["requestBody"]["content"]["application/json"]["schema"]
            assert set(schema["properties"]) == set(FIELDS[path])
            assert schema["additionalProperties"] is False
    assert [one["name"] for one in found["paths"]["/memory"]["get"]["parameters"]] == [
        "class", "first", "count",
    ]  # fmt: skip


def test_every_reply_is_neither_kept_nor_guessed_at(client, rows):
    replies = [
        client.get("/health"),
        client.get("/"),
        client.get("/openapi.json"),
        client.get("/nowhere"),
        client.get("/predict"),
        client.options("/predict"),
        client.post("/predict/", json={"rows": rows[:1]}, follow_redirects=False),
        client.post("/predict", json={"rows": rows[:1]}),
        client.post("/predict", json={}),
        client.get("/memory", headers={"host": "example.org"}),
    ]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff", reply.url
        assert reply.headers["cache-control"] == "no-store", reply.url
    assert [reply.status_code for reply in replies] == [
        200, 200, 200, 404, 405, 405, 404, 200, 400, 403
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8000", "127.0.0.1:1", "[::1]", "[::1]:9"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["[::1", "[::1]x", "[::1]:", "[::1]:x", "[::1]:8000:9", "[127.0.0.1]", "[localhost]", "::1",
     "localhost:x", "localhost:8000:9", "localhost:", "localhost:123456", "localhost@a.org",
     "a.org@localhost", "localhost ", "localhost/", "localhost.a.org", "[]", ":8000", "", "[::1%1]",
     "127.0.0.1.a.org", "127.0.0.1:٣", "0x7f.1"],
)  # fmt: skip
def test_malformed_hosts_and_other_names_are_refused(service, client, host):
    given = [("host", host.encode())]
    said = line_of(client.get("/health", headers=given), 403)
    assert "this server answers to localhost alone" in said
    with TestClient(app_of(service, token="s3cret")) as guarded:
        line_of(guarded.get("/run", headers=given), 401)
        assert guarded.get("/health", headers=given).status_code == 200


def test_two_hosts_are_none(client):
    given = [("host", "localhost"), ("host", "a.org")]
    line_of(client.get("/health", headers=given), 403)
