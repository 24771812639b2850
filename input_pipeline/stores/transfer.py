"""Questions to servers and downloads of files by HTTP, through the client of huggingface_hub.

A server is a stranger: answers that are too long or too slow are ended, and the token of the hub
goes to the hub alone. A download resumes where it stopped, and is compared with a hash.
"""

import contextvars
import dataclasses
import functools
import glob
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from vlc_jax.input_pipeline import stores

_PIECE = 8 * 2**20  # bytes hashed at a time
_ANSWER = 2**26  # bytes of an answer that is no file
_REQUESTS = 1_000  # of a question, which may have pages and retries
# After the first seconds an answer comes with so many bytes per second, and one that is no file is
# whole after the others.
_SECONDS, _RATE, _LONGEST = 30.0, 1_000, 600.0
_RATE_LIMIT = 330.0  # seconds in place of _SECONDS if the server asks to wait: its window, and more
_GUARDING = threading.Lock()
_COPY = "copy its files from a machine that has one (of the hub: the cache of `hf download`)"

T = TypeVar("T")


def download(url: str, path: Path, *, size: int, tag: str = "", expected: str = "") -> str:
    """Downloads a file into an existing folder and returns its sha256.

    size: in bytes.   tag: changes whenever the content at the address does; a partial file of
      another tag is not continued.
    expected: the file's sha256, or git's sha1 of it; "" if neither is known.
    Raises StoreError if the connection fails five times without a byte in between, or the content
    has another hash: a start after the first continues, one after the second downloads again.
    """
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    mark = hashlib.sha256(f"{url} {size} {tag}".encode()).hexdigest()[:12]
    partial = path.with_name(f".{path.name}.{mark}.partial")
    for other in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        if other != partial:
            other.unlink()
    if partial.is_symlink() or not partial.is_file():  # a link elsewhere, a pipe
        partial.unlink(missing_ok=True)
    with errors(url), partial.open("ab") as file:
        if file.tell() > size:
            file.truncate(0)
        if file.tell() < size:
            headers = build_hf_headers(library_name="vlc_jax")
            options = {"resume_size": file.tell(), "displayed_filename": path.name}
            ask(lambda: http_get(url, file, headers=headers, expected_size=size, **options), size)
    sha256 = digest(partial, expected)
    if sha256 is None:
        partial.unlink()
        raise stores.StoreError(
            f"{url}: the bytes that came have another hash than {expected}; they are removed: "
            "start the same command again, and if this stays, the server's file is damaged"
        )
    partial.replace(path)
    return sha256


def digest(path: Path, expected: str) -> str | None:
    """The sha256 of a file; None if it differs from `expected`.

    expected: the sha256, git's sha1 of the file, or "".
    """
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            sha256.update(piece)
            sha1.update(piece)
    is_same = expected in ("", sha256.hexdigest(), sha1.hexdigest())
    return sha256.hexdigest() if is_same else None


@dataclasses.dataclass
class _Exchange:
    """A question and its answers.   size: largest answer in bytes; None: of no file."""

    size: int | None
    seconds: float
    requests: int = 0
    received: int = 0
    is_over: bool = False

    def check(self, elapsed: float) -> None:
        """Raises StoreError if it takes too long."""
        is_slow = self.received < _RATE * elapsed or (self.size is None and elapsed > _LONGEST)
        if elapsed > self.seconds and is_slow:
            self.is_over = True
            raise stores.StoreError(f"{self.received:,} bytes came in {elapsed:.0f} seconds")

    def counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces of an answer."""
        most, received = _ANSWER if self.size is None else self.size, 0
        for piece in pieces:
            self.received += len(piece)
            received += len(piece)
            if self.is_over or received > most:
                raise stores.StoreError(f"an answer of more than {most:,} bytes")
            yield piece


_exchange = contextvars.ContextVar[_Exchange | None]("exchange", default=None)


def ask(call: Callable[[], T], size: int | None = None) -> T:
    """The result of a function that asks a server through `huggingface_hub`.

    size: of the file that it downloads.   Raises StoreError if an answer is too long or too slow,
    and what the function raises.
    """
    _guard()
    exchange, future = _Exchange(size, _SECONDS), futures.Future[T]()
    context = contextvars.copy_context()
    context.run(_exchange.set, exchange)

    def run() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:
            future.set_exception(error)

    # in a thread, which is left behind: a time-out of a socket counts from its last byte
    threading.Thread(target=run, daemon=True).start()
    start = time.monotonic()
    while not futures.wait([future], min(1.0, _SECONDS)).done:
        exchange.check(time.monotonic() - start)
    return future.result()


def _guard() -> None:
    """Adds the limits to each client that huggingface_hub makes: after some errors a new one."""
    import huggingface_hub
    from huggingface_hub.utils import _http

    with _GUARDING:
        make = _http._GLOBAL_CLIENT_FACTORY
        if getattr(make, "func", None) is not _guarded:
            huggingface_hub.set_client_factory(functools.partial(_guarded, make))


def _guarded(make: Callable[[], Any]) -> Any:
    client = make()
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], _before],
        "response": [*hooks["response"], _after],
    }
    return client


def _before(request: Any) -> None:
    """Called before each request, of pages and after redirects, too."""
    from huggingface_hub import constants

    url = request.url
    hub = type(url)(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    # a page names the next one, on any host
    if (url.scheme, url.host, url.port) != (hub.scheme, hub.host, hub.port):
        request.headers.pop("Authorization", None)
    if exchange := _exchange.get():
        # packed, an answer may be a thousand times as long
        request.headers["Accept-Encoding"] = "identity"
        exchange.requests += 1
        if exchange.is_over or exchange.requests > _REQUESTS:
            raise stores.StoreError(f"the answer has more than {_REQUESTS:,} pages or retries")


def _after(response: Any) -> None:
    if exchange := _exchange.get():
        if response.status_code == 429:
            exchange.seconds = _RATE_LIMIT
        if exchange.size is None:
            response.headers.pop("Content-Encoding", None)
        raw = response.iter_raw
        response.iter_raw = lambda *options: exchange.counted(raw(*options))


@contextmanager
def errors(where: str) -> Iterator[None]:
    """Context manager: converts errors of the connection to a StoreError with the address."""
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise ValueError(
            f"{where} is not on this machine, and HF_HUB_OFFLINE is set: unset it, or {_COPY}"
        ) from error
    except Exception as error:
        kinds = errors.HfHubHTTPError | json.JSONDecodeError | UnicodeError | stores.StoreError
        # a wrong address; a full disk
        is_other = isinstance(error, ValueError) or getattr(error, "errno", None)
        if is_other and not isinstance(error, kinds):
            raise
        text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        # some letters control a terminal
        text = "".join(letter for letter in text if letter.isprintable())
        if type(error).__name__ in ("ConnectError", "ConnectTimeout"):  # of httpx
            text = f"no connection to its server ({text}); without a network, {_COPY}"
        raise stores.StoreError(f"{where}: {text}") from error
