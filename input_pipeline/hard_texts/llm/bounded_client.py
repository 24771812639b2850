"""HTTP client for the openai library with limits on the time and size of a whole answer.

The library's timeout applies to each read: a slow server could block a request for ever, and an
endless response would fill the memory. This file imports the library, so only functions of
`client` import it.
"""

import asyncio
import importlib
from typing import Any

import openai

MAX_BODY = 1_000_000  # bytes; a caption has hundreds, a chain of thought about 10,000
TOO_LARGE = "vlc_jax_too_large"  # extension of a response whose longer body was dropped
# httpx, or its successor in newer versions of the library.
_http = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.split(".")[0])


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """seconds: limit for a whole answer, from the connection to the last byte."""

    def __init__(self, seconds: float) -> None:
        super().__init__(timeout=seconds)
        self._seconds = seconds

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """The response with its body. Raises ReadTimeout, which the library retries."""
        try:
            async with asyncio.timeout(self._seconds):
                response = await super().send(request, stream=True, **options)
                try:
                    body = await _body(response)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise _http.ReadTimeout("the answer is not complete", request=request) from error
        # Only the headers for retries and request ids. Not content-encoding (the body is decoded
        # already), nor the charset, by which a server could choose any codec of Python.
        names = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")
        headers = {name: response.headers[name] for name in names if name in response.headers}
        return _http.Response(
            response.status_code,
            headers=headers | {"content-type": "application/json"},
            content=body or b"",
            request=response.request,
            extensions={TOO_LARGE: body is None},
        )


async def _body(response: Any) -> bytes | None:
    """The body; None if it is longer than MAX_BODY."""
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_BODY:
            return None
    return body
