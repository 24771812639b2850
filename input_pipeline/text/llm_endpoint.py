"""Many questions to an OpenAI-compatible endpoint at a time, and its errors in plain words."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from input_pipeline.record import DataError
from input_pipeline.text.llm_answers import Answer

_GRACE = 10.0  # seconds that questions under way have to end after one has failed
_PASSING = (408, 409, 429)  # with 5xx: what the library tries again


class EndpointError(Exception):
    """The endpoint cannot be reached or is out of order; the same request may succeed later."""


class Question(NamedTuple):
    """A prompt, and the other fields of its request (max_tokens, temperature, seed, ...)."""

    index: int
    prompt: str
    fields: Mapping[str, Any]


class Endpoint(NamedTuple):
    """Where to ask. key: None for servers that want none; timeout: seconds for each try."""

    base_url: str
    key: str | None
    model: str
    retries: int
    timeout: float


def check_library() -> None:
    """Raises ValueError where the client library is not installed."""
    try:
        import openai  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f'the client library openai cannot be imported ({error}); pip install "vlc_jax[llm]", '
            "or pip install openai"
        ) from error


async def ask_all(
    endpoint: Endpoint,
    questions: Iterator[Question],
    concurrency: int,
    store: Callable[[int, Answer], None],
) -> None:
    """Calls `store` with every answer as soon as it is there, in the order of arrival.

    Passing failures (429, 5xx, time-outs, lost connections) are tried again by the library, after
    0.5, 1, 2, 4, 8, 8, ... seconds or as long as the endpoint says. After another failure no
    question is asked any more, and what is under way has ten seconds to end.

    Raises EndpointError, ValueError where the endpoint refuses the key, the model or the request,
    and DataError where it does not answer as the protocol says.
    """
    import openai

    client = openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",  # the library wants one; servers without keys ignore it
        max_retries=endpoint.retries,
        timeout=endpoint.timeout,
    )
    failed = asyncio.Event()

    async def work() -> None:
        for question in questions:
            try:
                answer = await _ask(client, endpoint, question)
                store(question.index, answer)
            except BaseException:
                failed.set()
                raise
            if failed.is_set():
                return

    async with client:
        first = next(questions, None)
        if first is None:
            return
        await _check_reachable(client, endpoint, first, store)
        tasks = [asyncio.create_task(work()) for _ in range(concurrency)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.wait(tasks, timeout=_GRACE)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    for error in results:
        if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
            raise error
