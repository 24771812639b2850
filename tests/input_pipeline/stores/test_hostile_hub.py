"""A server that is no hub, or a hostile one, ends in one line: nothing leaks, hangs or gets out."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from tests.support.hub import forget
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import fetch_sets
from vlc_jax.input_pipeline.stores import fetch, hub_api, transfer

COMMIT = "0" * 40
ADDRESS = f"hf://me/x@{COMMIT}"
OK = b"HTTP/1.1 200 OK\r\n"
FILE = {"type": "file", "path": "a.json", "size": 2, "oid": "1" * 40}


@contextmanager
def listening(answer):
    """Address of a server whose connections `answer(request, connection)` writes to."""

    def serve(connection):
        with connection:
            try:
                answer(connection.recv(65536), connection)
            except OSError:
                return

    def accept():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Makes a function the hub of this test, with limits of a moment."""
    monkeypatch.setenv("VLC_STORES", str(tmp_path / "a" / "b" / "copies"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr(transfer, "_SECONDS", 0.3)
    monkeypatch.setattr(transfer, "_ANSWER", 10**6)
    monkeypatch.setattr(transfer, "_REQUESTS", 20)
    monkeypatch.setattr(hub_api, "_FILES", 100)

    @contextmanager
    def make(answer):
        with listening(answer) as address:
            monkeypatch.setenv("HF_ENDPOINT", address)
            forget()
            yield address
        forget()

    return make


def json_answer(value, more=b""):
    body = json.dumps(value).encode()
    head = OK + more + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    return lambda _, connection: connection.sendall(head + body)


def repeated(start, piece, pause=0.0):
    def answer(_, connection):
        connection.sendall(start)
        while True:
            connection.sendall(piece)
            time.sleep(pause)

    return answer


HOSTILE = {
    "endless": repeated(OK + b"\r\n", b"[" * 65536),
    "headers": repeated(OK, b"a: b\r\n" * 1000),
    "no HTTP": lambda _, connection: connection.sendall(b"SSH-2.0-x\r\n"),
    "slow head": repeated(b"HTTP/1.1 200 O", b"K", 0.1),
    "slow body": repeated(OK + b"\r\n", b"[", 0.1),
    "silent": lambda _, connection: time.sleep(5),
}
LISTINGS = {
    "pages": json_answer([], b'Link: </api>; rel="next"\r\n'),
    "deep": lambda _, connection: connection.sendall(OK + b"\r\n" + b"[" * 10**5),
    "no list": json_answer({"a": 1}),
    "many": json_answer([FILE | {"path": f"{n}.json"} for n in range(101)]),
    "long name": json_answer([FILE | {"path": "a" * 300 + ".json"}]),
    "parent": json_answer([FILE | {"path": "b/../../a.json"}, FILE]),
    "file and folder": json_answer([FILE, FILE | {"path": "a.json/b.json"}]),
    "size": json_answer([FILE | {"size": "2"}]),
    "oid": json_answer([FILE | {"oid": "../x"}]),
}


@pytest.mark.parametrize("kind", [*HOSTILE, *LISTINGS])
def test_a_listing_ends_in_one_line(serve, kind, tmp_path):
    start = time.monotonic()
    with serve({**HOSTILE, **LISTINGS}[kind]), pytest.raises(stores.StoreError) as caught:
        fetch.local(ADDRESS)
    assert str(caught.value).startswith(ADDRESS)
    assert len(str(caught.value).splitlines()) == 1
    assert time.monotonic() - start < 4
    assert not [*tmp_path.rglob("a.json")]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_and_its_size_end_in_one_line(serve, kind, tmp_path):
    with serve(HOSTILE[kind]) as address:
        with pytest.raises((stores.StoreError, ValueError), match=address):
            fetch_sets._ask(f"{address}/a.zip")
        if kind not in ("headers", "no HTTP"):  # five tries, with pauses
            with pytest.raises(stores.StoreError, match=address):
                transfer.download(f"{address}/a", tmp_path / "a", size=1000)


def test_a_client_that_is_made_again_keeps_the_limits(serve, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(transfer, "_SECONDS", 60.0)  # too long an answer, however slow this machine

    def call():
        huggingface_hub.close_session()  # as after an error of the connection
        return huggingface_hub.get_session().get(address)

    with serve(HOSTILE["endless"]) as address, pytest.raises(stores.StoreError, match="more than"):
        transfer.ask(call)


@pytest.mark.parametrize("sha", ["../../x", "/x", "", None, 7, "0" * 39, "G" * 40])
def test_a_commit_is_a_hash(serve, sha, tmp_path):
    with serve(json_answer({"id": "me/x", "sha": sha})), pytest.raises(stores.StoreError):
        fetch.local("hf://me/x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_token_goes_to_the_hub_alone(serve, tmp_path):
    seen = {"hub": b"", "other": b""}

    def other(request, connection):
        seen["other"] += request
        json_answer([FILE])(request, connection)

    def hub(request, connection):
        seen["hub"] += request
        link = f'Link: <{address}/next>; rel="next"\r\n'.encode()
        json_answer([], link)(request, connection)

    with listening(other) as address, serve(hub):
        assert [file.path for file in hub_api.listing(hub_api.Address("model", "me/x", COMMIT))]
        transfer.download(f"{address}/a", tmp_path / "file", size=len(json.dumps([FILE])))
    assert b"Bearer secret" in seen["hub"]
    assert seen["other"].count(b"GET /") == 2
    assert b"secret" not in seen["other"]
