"""HTTP client of the openai library that bounds an answer in time and in size.

The library's own timeout is for each read: a server that sends a byte now and then would hold a
question for ever, and one that sends without end would fill the memory. Imports the library, so
only `client.ask_all` imports this file.
"""

import asyncio
import importlib
from typing import Any

import openai

MAX_BODY = 1_000_000  # bytes; a caption has hundreds, what a model thinks aloud some 10,000
TOO_LARGE = "vlc_jax_too_large"  # extension of a response whose body was longer, and is left out
# httpx, or its successor that newer versions of the library use in its place.
_http = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.split(".")[0])


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """seconds: for a whole answer, from the connection to the last byte."""

    def __init__(self, seconds: float) -> None:
        super().__init__(timeout=seconds)
        self._seconds = seconds

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """The response, read. Raises ReadTimeout, which the library tries again."""
        try:
            async with asyncio.timeout(self._seconds):
                response = await super().send(request, stream=True, **options)
                try:
                    body = await _body(response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise _http.ReadTimeout("the answer is not complete", request=request) from error
        # Of the headers those that the library waits by and shows; never an encoding of the body,
        # which is decoded, nor of its letters, for which a server may name any codec of Python.
        kept = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")
        headers = {name: response.headers[name] for name in kept if name in response.headers}
        return _http.Response(
            response.status_code,
            headers=headers | {"content-type": "application/json"},
            content=body or b"",
            request=response.request,
            extensions={TOO_LARGE: body is None},
        )


async def _body(response: Any) -> bytes | None:
    """The body; None where it is longer than MAX_BODY."""
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_BODY:
            return None
    return body
