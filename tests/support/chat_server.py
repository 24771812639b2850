"""A local server of the chat completions protocol, told by a test how to answer."""

import collections
import contextlib
import http.server
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Reply(NamedTuple):
    """status 0 hangs up without an answer; `body` that is no text is sent as JSON.

    pause: seconds between two bytes of the body.
    """

    status: int
    body: object
    headers: tuple[tuple[str, str], ...] = ()
    pause: float = 0.0


def says(text: str | None, finish: str = "stop") -> Reply:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny-1"}
    return Reply(200, body | {"choices": [choice], "usage": usage})


def completes(text: str, finish: str = "stop") -> Reply:
    """An answer to a plain text."""
    reply = says(text, finish)
    (choice,) = reply.body["choices"]
    return reply._replace(body=reply.body | {"choices": [choice | {"text": text}]})


def fails(status: int, message: str, code: str | None = None) -> Reply:
    headers = (("retry-after-ms", "1"),)
    return Reply(status, {"error": {"message": message, "code": code}}, headers)


class Server:
    """`asked[caption]` counts questions; `requests` are (headers, body); `most` were under way."""

    def __init__(self, answer: Callable[[str, int], Reply]) -> None:
        self.answer, self.url = answer, ""
        self.asked: collections.Counter[str] = collections.Counter()
        self.requests: list[tuple[dict[str, str], dict]] = []
        self.under_way = self.most = 0
        self.lock = threading.Lock()

    def reply(self, headers: dict[str, str], body: dict) -> Reply:
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        caption = prompt.rpartition("Input: ")[2].partition("\n")[0]
        with self.lock:
            self.requests.append((headers, body))
            self.asked[caption] += 1
            time = self.asked[caption]
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        try:
            return self.answer(caption, time)
        finally:
            with self.lock:
                self.under_way -= 1


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.send(fails(404, "only chat completions here"))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert self.path == ("/v1/completions" if "prompt" in body else "/v1/chat/completions")
            self.send(server.reply({k.lower(): v for k, v in self.headers.items()}, body))

        def send(self, reply: Reply) -> None:
            if not reply.status:
                self.close_connection = True
                return
            is_text = isinstance(reply.body, str)
            data = (reply.body if is_text else json.dumps(reply.body)).encode()
            with contextlib.suppress(ConnectionError):  # a client that was killed
                self.send_response(reply.status)
                self.send_header("content-type", "text/html" if is_text else "application/json")
                for name, value in (("content-length", str(len(data))), *reply.headers):
                    self.send_header(name, value)
                self.end_headers()
                for k in range(len(data)) if reply.pause else ():
                    self.wfile.write(data[k : k + 1])
                    self.wfile.flush()
                    time.sleep(reply.pause)
                if not reply.pause:
                    self.wfile.write(data)

    return Handler


class _Listening(http.server.ThreadingHTTPServer):
    request_queue_size = 64  # a connection that is not taken at once is tried again after a second

    def handle_error(self, *where: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # as of a client that was killed
            super().handle_error(*where)


@contextlib.contextmanager
def serving(answer: Callable[[str, int], Reply]) -> Iterator[Server]:
    """A server whose `answer(caption, n)` replies to the n-th question about a caption."""
    server = Server(answer)
    with _Listening(("127.0.0.1", 0), _handler(server)) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}/v1"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
