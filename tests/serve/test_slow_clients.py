"""Clients that send or read slowly are cut off, and keep nobody else from being answered."""

import http.client
import json
import socket
import time
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from hma.serve.server import Server, TimedProtocol, listening
from hma.serve.service import Service

BODY = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALVES = {
    "nothing": b"",
    "half a header": b"GET /run HTTP/1.1\r\nHost: loc",
    "half a body": BODY + b'Content-Length: 99\r\n\r\n{"places": [',
    "half of a chunked body": BODY + b"Transfer-Encoding: chunked\r\n\r\n3\r\n{\n\n\r\n",
    "a body that is not read": b"GET /run HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9\r\n\r\n1",
}


@contextmanager
def serving(service, monkeypatch, token=None, header=0.6, body=0.9):
    monkeypatch.setattr(TimedProtocol, "header_seconds", header)
    monkeypatch.setattr(TimedProtocol, "body_seconds", body)
    server = Server(service, token, write_wait=1.0)
    with listening("127.0.0.1", 0) as own:
        address = own.getsockname()
        thread = Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def address(service, monkeypatch):
    with serving(service, monkeypatch) as found:
        yield found


def half_sent(address, data):
    found = socket.create_connection(address, timeout=20)
    found.sendall(data)
    return found


def asked(address, path="/health", body=None, token=None):
    connection = http.client.HTTPConnection(*address, timeout=20)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection.request("GET" if body is None else "POST", path, body, headers)
    reply = connection.getresponse()
    values = json.loads(reply.read())
    connection.close()
    return reply.status, values


def read_to_the_end(connection):
    data = b""
    try:
        while part := connection.recv(2**16):
            data += part
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("token", [None, "s3cret"])
@pytest.mark.parametrize("half", HALVES)
def test_others_are_answered_while_many_requests_are_half_sent(service, monkeypatch, half, token):
    with serving(service, monkeypatch, token, header=20, body=20) as address, ExitStack() as open_:
        for _ in range(2 * TimedProtocol.most_connections):
            open_.enter_context(half_sent(address, HALVES[half]))
        began = time.monotonic()
        for _ in range(3):
            assert asked(address) == (200, {"status": "ok", "version": 0})
            status, values = asked(address, "/predict", b'{"places": [1, 2]}', token)
            assert (status, len(values["predictions"])) == (200, 2)
        assert time.monotonic() - began < 15  # before any of them ran out of time


@pytest.mark.parametrize("half", HALVES)
def test_a_request_that_does_not_arrive_is_cut_off(address, half):
    began = time.monotonic()
    with half_sent(address, HALVES[half]) as connection:
        said = read_to_the_end(connection)
    assert time.monotonic() - began < 10
    if half == "nothing":
        assert said == b""
    elif half == "a body that is not read":
        assert said.startswith(b"HTTP/1.1 200 OK")
    else:
        head, _, line = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 Request Timeout")
        assert b"x-content-type-options: nosniff" in head
        assert "the request did not arrive within 0." in json.loads(line)["error"]


@pytest.mark.parametrize("half", ["half a header", "half a body", "a body that is not read"])
def test_a_byte_now_and_then_does_not_put_the_end_off(address, half):
    began = time.monotonic()
    drop = b"a" if half == "half a header" else b" "
    with half_sent(address, HALVES[half]) as connection:
        connection.settimeout(0.1)
        while time.monotonic() - began < 10:
            try:
                connection.sendall(drop)
                if connection.recv(2**16) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - began < 9


def test_slow_work_is_not_cut_off_and_a_connection_is_used_again(service, monkeypatch):
    def slowly(self, values):
        time.sleep(1.5)
        return {"slow": True}

    monkeypatch.setattr(Service, "predict", slowly)
    with serving(service, monkeypatch) as address:
        connection = http.client.HTTPConnection(*address, timeout=20)
        for _ in range(2):
            connection.request("POST", "/predict", b"{}", {"Content-Type": "application/json"})
            assert json.loads(connection.getresponse().read()) == {"slow": True}
        connection.close()


def test_what_is_no_http_is_refused_in_one_line(address):
    for data in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                 BODY + b"Content-Length: -1\r\n\r\n"):  # fmt: skip
        with half_sent(address, data) as connection:
            head, _, line = read_to_the_end(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request"), data
        assert b"cache-control: no-store" in head
        assert json.loads(line) == {"error": "Invalid HTTP request received."}
    assert asked(address)[0] == 200


def test_more_work_than_there_is_room_for_is_put_off_in_one_line(service, monkeypatch):
    monkeypatch.setattr("hma.serve.service.MOST_AT_ONCE", 2)
    monkeypatch.setattr(Service, "predict", lambda self, values: time.sleep(1.0) or {})
    with serving(service, monkeypatch) as address:
        seen = []
        threads = [
            Thread(target=lambda: seen.append(asked(address, "/predict", b"{}"))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {status for status, _ in seen} == {200, 503}
    refused = next(values for status, values in seen if status == 503)
    assert refused["error"].startswith("too many requests are waiting; nothing was done")
