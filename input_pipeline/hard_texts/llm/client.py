"""Client of an OpenAI-compatible endpoint: concurrent requests, readable errors."""

import asyncio
import json
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from vlc_jax.input_pipeline.hard_texts.llm.answers import (
    TOO_LONG,
    Answer,
    Complete,
    Question,
    Store,
)
from vlc_jax.input_pipeline.record import DataError

if TYPE_CHECKING:
    import openai

_GRACE = 10.0  # seconds for requests in flight after another has failed
_MIN_KEY = 8  # characters; a shorter key ("none", "EMPTY") is no secret, and may be a word
_MAX_NAME = 200  # maximal characters of a model's name or a finish reason
_MAX_TOKENS = 10**9  # maximum of an answer or its prompt
_PASSING = (408, 409, 429)  # status codes that the library retries, like 5xx
FORMS = ("chat", "text")


class EndpointError(Exception):
    """The endpoint is unreachable or fails; the same request may succeed later."""


class Endpoint(NamedTuple):
    """Address, key and model of a server.

    form: one of FORMS: the prompt is a user message, or the start of a plain text.
    key: None for a server without keys. timeout: seconds of a try, up to the answer's last byte.
    """

    base_url: str
    key: str | None
    model: str
    form: str
    retries: int
    timeout: float


def without_key(text: str, key: str | None) -> str:
    """`text` with the endpoint's key replaced by [key], for printing and storing."""
    if key is None or len(key) < _MIN_KEY:
        return text
    for form in (key, urllib.parse.quote(key, safe=""), json.dumps(key)[1:-1]):
        text = text.replace(form, "[key]")
    return text


def check_library() -> None:
    """Raises ValueError if the client library is not installed."""
    try:
        import openai  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"the client library openai cannot be imported ({error}); pip install openai"
        ) from error


def completing(endpoint: Endpoint, concurrency: int) -> Complete:
    """A `Complete` that queries the endpoint with at most `concurrency` requests in flight."""

    def complete(questions: Iterator[Question], store: Store) -> None:
        asyncio.run(ask_all(endpoint, questions, concurrency, store))

    return complete


async def ask_all(
    endpoint: Endpoint, questions: Iterator[Question], concurrency: int, store: Store
) -> None:
    """Sends the questions and calls `store` with each answer on arrival.

    The endpoint's key is removed from answers; a body above `bounded_client.MAX_BODY` has no text.
    The library retries temporary failures (429, 5xx, time-outs, lost connections) after 0.5, 1, 2,
    4, 8, 8, ... seconds or the endpoint's retry-after. After any other failure no further question
    is sent, and requests in flight get ten seconds to finish.

    Raises EndpointError if retries do not help, ValueError if the endpoint refuses the key, the
    model or the request, DataError for a response that violates the protocol.
    """
    import openai

    from vlc_jax.input_pipeline.hard_texts.llm.bounded_client import BoundedClient

    client = openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.key or "none",  # required by the library; servers without keys ignore it
        max_retries=endpoint.retries,
        timeout=endpoint.timeout,
        http_client=BoundedClient(endpoint.timeout),
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
        # Before the tasks: the library would retry an unreachable server for a minute.
        await _check_reachable(client, endpoint)
        tasks = [asyncio.create_task(work()) for _ in range(concurrency)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            await asyncio.wait(tasks, timeout=_GRACE)  # requests in flight are paid for
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ends:
        if isinstance(error, Exception):  # a cancelled task ends with a BaseException
            raise error


async def _check_reachable(client: "openai.AsyncOpenAI", endpoint: Endpoint) -> None:
    """Raises EndpointError at once if no server listens; ignores every other error."""
    import openai

    try:
        await client.with_options(max_retries=0).models.with_raw_response.list()
    except openai.APITimeoutError:
        return
    except openai.APIConnectionError as error:
        raise _explained(error, endpoint, tries=1) from error
    except openai.OpenAIError:
        return


async def _ask(client: "openai.AsyncOpenAI", endpoint: Endpoint, question: Question) -> Answer:
    import openai

    from vlc_jax.input_pipeline.hard_texts.llm.bounded_client import TOO_LARGE

    try:
        # Raw: the library does not validate responses against its types.
        options: dict[str, Any] = {"model": endpoint.model, "extra_body": dict(question.fields)}
        if endpoint.form == "chat":
            messages = [{"role": "user", "content": question.prompt}]
            response = await client.chat.completions.with_raw_response.create(
                messages=messages, **options
            )
        else:
            response = await client.completions.with_raw_response.create(
                prompt=question.prompt, **options
            )
    except openai.OpenAIError as error:
        if getattr(error, "code", None) == "content_filter":
            return Answer(None, "content_filter", 0, 0, None)
        raise _explained(error, endpoint, endpoint.retries + 1) from error
    if response.http_response.extensions.get(TOO_LARGE):
        return Answer(None, TOO_LONG, 0, 0, None)
    return _read(response.text, endpoint)


def _read(body: str, endpoint: Endpoint) -> Answer:
    """Parses a completion. Raises DataError for a malformed one."""

    def redacted(text: Any) -> Any:
        return without_key(text, endpoint.key) if isinstance(text, str) else text

    try:
        completion = json.loads(body)
        choice, usage = completion["choices"][0], completion.get("usage") or {}
        answer = Answer(
            redacted(
                choice["message"].get("content") if endpoint.form == "chat" else choice["text"]
            ),
            redacted(choice.get("finish_reason")),
            usage.get("prompt_tokens") or 0,
            usage.get("completion_tokens") or 0,
            redacted(completion.get("model")),
        )
        texts = answer.text, answer.finish, answer.model
        counts = answer.prompt_tokens, answer.completion_tokens
        if not all(isinstance(text, str | None) for text in texts):
            raise TypeError(f"text is needed; got {texts}")
        if any(len(name or "") > _MAX_NAME for name in (answer.finish, answer.model)):
            raise TypeError("a name is needed; got a text")
        if not all(isinstance(n, int) and 0 <= n < _MAX_TOKENS for n in counts):
            raise TypeError(f"numbers of tokens are needed; got {counts}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        excerpt = " ".join(redacted(body)[:200].split())
        raise DataError(
            f"{endpoint.base_url} does not answer with a {endpoint.form} completion but with "
            f"{excerpt!r} ({redacted(repr(error))[:200]}); is it OpenAI-compatible, and is "
            "--base-url right (it often ends with /v1)?"
        ) from error
    return answer


def _explained(error: "openai.OpenAIError", endpoint: Endpoint, tries: int) -> Exception:
    """The library's error as EndpointError, ValueError or DataError that names the remedy."""
    import openai

    where, times = endpoint.base_url, f"after {tries} {'try' if tries == 1 else 'tries'}"
    if isinstance(error, openai.APITimeoutError):
        return EndpointError(f"{where} gives no answer within {endpoint.timeout:g} s {times}")
    if isinstance(error, openai.APIConnectionError):
        return EndpointError(f"cannot reach {where} {times}: {error.__cause__ or error}")
    if not isinstance(error, openai.APIStatusError):
        return DataError(f"{where} does not answer as the protocol says: {error}")
    reason = f"{error.status_code}: {_message(error, endpoint.key)}"
    if error.status_code in _PASSING or error.status_code >= 500:
        return EndpointError(f"{where} is out of order {times} ({reason})")
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


def _message(error: "openai.APIStatusError", key: str | None) -> str:
    """The endpoint's message in one line; the key is removed before the cut could split it."""
    body = error.body
    text = body.get("message") if isinstance(body, dict) else body
    return " ".join(without_key(str(text or error.message), key).split())[:300]
