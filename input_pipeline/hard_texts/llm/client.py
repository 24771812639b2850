"""Client of an OpenAI-compatible endpoint: the openai library, with errors that name a remedy.

This file imports the library, an optional dependency, so commands import it when they need it.
"""

import asyncio
import importlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import openai

from vlc_jax.input_pipeline.hard_texts.llm.answers import (
    Answer,
    Complete,
    Question,
    Store,
    without_key,
)
from vlc_jax.input_pipeline.record import DataError

_GRACE = 10.0  # seconds for requests in flight after another has failed
_MAX_TOKENS = 10**9  # of an answer or its prompt
_PASSING = (408, 409, 429)  # status codes that the library retries, like 5xx
# httpx, or its successor in newer versions of the library.
_http = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.split(".")[0])


class Endpoint(NamedTuple):
    """Address, key and model of a server.

    form: "chat" or "text": the prompt is a user message, or the start of a plain text.
    key: None for a server without keys. timeout: seconds of a try, up to the answer's last byte.
    """

    base_url: str
    key: str | None
    model: str
    form: str
    retries: int
    timeout: float


class _HttpClient(openai.DefaultAsyncHttpxClient):
    """The library's HTTP client with a limit for a whole answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__(timeout=seconds)
        self._seconds = seconds

    async def send(self, request: Any, **options: Any) -> Any:
        # The library's timeout is for each read: a server that drips bytes would never meet it.
        try:
            async with asyncio.timeout(self._seconds):
                return await super().send(request, **options)
        except TimeoutError as error:
            # the library retries errors of its HTTP package only
            raise _http.ReadTimeout("the answer is not complete", request=request) from error


def completing(endpoint: Endpoint, concurrency: int) -> Complete:
    """A `Complete` that queries the endpoint with at most `concurrency` requests in flight.

    The library retries temporary failures (429, 5xx, time-outs, lost connections) after 0.5, 1, 2,
    4, 8, 8, ... seconds or the endpoint's retry-after. After any other failure no further question
    is sent, and requests in flight get ten seconds to finish. The key is removed from answers.

    Raises ConnectionError if retries do not help, ValueError if the endpoint refuses the key, the
    model or the request, DataError for a response that violates the protocol.
    """

    def complete(questions: Iterator[Question], store: Store) -> None:
        asyncio.run(_ask_all(endpoint, questions, concurrency, store))

    return complete


async def _ask_all(
    endpoint: Endpoint, questions: Iterator[Question], concurrency: int, store: Store
) -> None:
    failed = asyncio.Event()
    client = openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        # the library requires a key, and servers without keys ignore it
        api_key=endpoint.key or "none",
        max_retries=endpoint.retries,
        timeout=endpoint.timeout,
        http_client=_HttpClient(endpoint.timeout),
    )

    async def work() -> None:
        for question in questions:
            try:
                store(question.index, await _ask(client, endpoint, question))
            except BaseException:
                failed.set()
                raise
            if failed.is_set():
                return

    async with client:
        # Before the tasks: the library would retry an unreachable server for a minute.
        await _check_reachable(client, endpoint)
        tasks = [asyncio.create_task(work()) for _ in range(concurrency)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            # requests in flight are paid for, so their answers are worth a short wait
            await asyncio.wait(tasks, timeout=_GRACE)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ends:
        # not of cancelled tasks, which end with a BaseException
        if isinstance(error, Exception):
            raise error


async def _check_reachable(client: openai.AsyncOpenAI, endpoint: Endpoint) -> None:
    """Raises ConnectionError at once if no server listens; ignores every other error."""
    try:
        await client.with_options(max_retries=0).models.with_raw_response.list()
    except openai.APITimeoutError:
        return
    except openai.APIConnectionError as error:
        raise _explained(error, endpoint, tries=1) from error
    except openai.OpenAIError:
        return


async def _ask(client: openai.AsyncOpenAI, endpoint: Endpoint, question: Question) -> Answer:
    options: dict[str, Any] = {"model": endpoint.model, "extra_body": dict(question.fields)}
    # Raw: the library does not validate responses against its types.
    try:
        if endpoint.form == "chat":
            messages: Any = [{"role": "user", "content": question.prompt}]
            chat = client.chat.completions.with_raw_response
            response: Any = await chat.create(messages=messages, **options)
        else:
            plain = client.completions.with_raw_response
            response = await plain.create(prompt=question.prompt, **options)
    except openai.OpenAIError as error:
        # a filtered caption would be refused again: it has an answer without a text
        if getattr(error, "code", None) == "content_filter":
            return Answer(None, "content_filter", 0, 0, None)
        raise _explained(error, endpoint, endpoint.retries + 1) from error
    return _read(response.content, endpoint)


def _read(body: bytes, endpoint: Endpoint) -> Answer:
    """Parses a completion. Raises DataError for a malformed one."""
    # Bytes, as JSON is UTF-8: a server's charset may be any codec of Python, even one without text.
    try:
        completion = json.loads(body)
        choice, usage = completion["choices"][0], completion.get("usage") or {}
        text = choice["message"].get("content") if endpoint.form == "chat" else choice["text"]
        texts = text, choice.get("finish_reason"), completion.get("model")
        counts = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
        if not all(isinstance(text, str | None) for text in texts):
            raise TypeError(f"text is needed; got {texts}")
        if not all(isinstance(n, int) and 0 <= n < _MAX_TOKENS for n in counts):
            raise TypeError(f"numbers of tokens are needed; got {counts}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # The key is removed before the cut, which could split it.
        start = without_key(body.decode("utf-8", "replace"), endpoint.key)[:200]
        raise DataError(
            f"{endpoint.base_url} does not answer with a {endpoint.form} completion but with "
            f"{' '.join(start.split())!r} ({without_key(repr(error), endpoint.key)[:200]}); is it "
            "OpenAI-compatible, and is --base-url right (it often ends with /v1)?"
        ) from error
    text, finish, model = (text and without_key(text, endpoint.key) for text in texts)
    return Answer(text, finish, *counts, model)


def _explained(error: openai.OpenAIError, endpoint: Endpoint, tries: int) -> Exception:
    """The library's error as ConnectionError, ValueError or DataError that names the remedy."""
    where, times = endpoint.base_url, f"after {tries} {'try' if tries == 1 else 'tries'}"
    if isinstance(error, openai.APITimeoutError):
        return ConnectionError(f"{where} gives no answer within {endpoint.timeout:g} s {times}")
    if isinstance(error, openai.APIConnectionError):
        return ConnectionError(f"cannot reach {where} {times}: {error.__cause__ or error}")
    if not isinstance(error, openai.APIStatusError):
        return DataError(f"{where} does not answer as the protocol says: {error}")
    message = error.body.get("message") if isinstance(error.body, dict) else error.body
    text = without_key(str(message or error.message), endpoint.key)
    reason = f"{error.status_code}: {' '.join(text.split())[:300]}"
    if error.status_code in _PASSING or error.status_code >= 500:
        return ConnectionError(f"{where} is out of order {times} ({reason})")
    if error.status_code in (401, 403):
        sent = "a key that it refuses" if endpoint.key else "no key"
        return ValueError(f"{where} got {sent} ({reason}); put one into OPENAI_API_KEY")
    if error.status_code == 404:
        return ValueError(
            f"{where} knows no model {endpoint.model!r}, or is no such address ({reason}); check "
            "--model and --base-url (often ends with /v1), and --form: not all offer both"
        )
    return ValueError(
        f"{where} refuses the request ({reason}); --option NAME=VALUE sets a field, --option "
        "NAME=null leaves it out"
    )
