"""Batch files of language models, as OpenAI's batch API and `vllm run-batch` define them.

A request is a line of JSON with custom_id, method, url and body, an answer one with custom_id,
response (status_code, body) and error. The lines of an answer file are in any order.
"""

import collections
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.hard_texts.llm.answers import Answer

URLS = {"chat": "/v1/chat/completions", "text": "/v1/completions"}  # by the form of the prompt
_FILES = re.compile(r"batch(_\d{3,})?\.jsonl")
_MAX_TOKENS = 10**9  # of an answer or its prompt
_ERROR = 200  # characters of a service's error
# Exceptions of reading a damaged line; RecursionError: deeply nested brackets.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def question(name: str, form: str, prompt: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A request with a prompt. form: a key of URLS. fields: of the body, the model included."""
    message = {"messages": [{"role": "user", "content": prompt}]}
    body = fields | (message if form == "chat" else {"prompt": prompt})
    return {"custom_id": name, "method": "POST", "url": URLS[form], "body": body}


def write(out: Path, requests: Iterable[dict[str, Any]], per_file: int | None) -> list[Path]:
    """Replaces the batch files in OUT: batch.jsonl, or batch_001.jsonl, ... of `per_file` lines."""
    for path in out.iterdir():
        # a service would answer, and bill, the requests of an earlier call again
        if _FILES.fullmatch(path.name):
            path.unlink()
    paths = []
    numbered = enumerate(requests)
    for number, group in itertools.groupby(numbered, lambda pair: pair[0] // (per_file or 10**12)):
        paths.append(out / (f"batch_{number + 1:03}.jsonl" if per_file else "batch.jsonl"))
        with stores.replacing(paths[-1]) as file:
            for _, request in group:
                file.write(json.dumps(request) + "\n")
    return paths


def answer_line(name: str, answer: Answer) -> bytes:
    """A line with the answer to a plain text."""
    choice = {"index": 0, "text": answer.text or "", "finish_reason": answer.finish}
    usage = {name: getattr(answer, name) for name in ("prompt_tokens", "completion_tokens")}
    body = {"object": "text_completion", "model": answer.model, "choices": [choice], "usage": usage}
    response = {"status_code": 200, "request_id": name, "body": body}
    row = {"id": name, "custom_id": name, "response": response, "error": None}
    return json.dumps(row).encode() + b"\n"


def read_answer(line: bytes) -> tuple[str, Answer | str]:
    """The custom_id of a line and its answer, or the error of a request that has none.

    Raises one of DAMAGE for a line that is no answer.
    """
    row = json.loads(line)
    name, response = row["custom_id"], row["response"] or {}
    body, status = response.get("body") or {}, response.get("status_code", 200)
    error = row.get("error") or body.get("error")
    if not isinstance(name, str):
        raise TypeError(f"text is needed; got {name!r}")
    if error or status != 200:
        # vLLM wraps the error of its server
        while isinstance(error, dict) and isinstance(error.get("error"), dict):
            error = error["error"]
        facts = error if isinstance(error, dict) else {"message": error}
        # a filtered caption would be refused again: it has an answer without a text
        if facts.get("code") == "content_filter":
            return name, Answer(None, "content_filter", 0, 0, None)
        said = f"{facts.get('code') or status}: {facts.get('message') or 'no message'}"
        return name, " ".join(said.split())[:_ERROR]
    choice, usage = body["choices"][0], body.get("usage") or {}
    text = choice["message"].get("content") if "message" in choice else choice["text"]
    texts = text, choice.get("finish_reason"), body.get("model")
    counts = [usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")]
    if not all(isinstance(each, str | None) for each in texts):
        raise TypeError(f"text is needed; got {texts}")
    if not all(isinstance(n, int) and 0 <= n < _MAX_TOKENS for n in counts):
        raise TypeError(f"numbers of tokens are needed; got {counts}")
    return name, Answer(*texts[:2], *counts, texts[2])


class Answers:
    """The answers in files, by caption index; their places are in memory, not their texts.

    The first of several answers about a caption counts, and any of them before an error.
    errors: of captions without an answer.   problems: a line to print for each kind and file.
    """

    def __init__(self, files: Sequence[Path], request: str, count: int) -> None:
        """request: the one asked about `count` captions; answers of others are a ValueError."""
        self._files, self._request = files, request
        # lists of sentences for millions of captions are gigabytes
        self._places = np.full((count, 2), -1, np.int64)  # file and offset; -1: no answer
        self.errors: dict[int, str] = {}
        self.problems: list[str] = []
        self.models: collections.Counter[str] = collections.Counter()
        self.tokens = [0, 0]  # of prompts, of answers
        for number in range(len(files)):
            self._scan(number)

    def __contains__(self, index: int) -> bool:
        return self._places[index, 0] >= 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._places[:, 0] >= 0))

    def __getitem__(self, index: int) -> Answer:
        number, offset = self._places[index]
        with self._files[number].open("rb") as file:
            file.seek(offset)
            answer = read_answer(file.readline())[1]
        assert isinstance(answer, Answer)
        return answer

    def _scan(self, number: int) -> None:
        path, end, reason = self._files[number], 0, ""
        answered, repeated, unreadable = 0, [], []  # row numbers
        with path.open("rb") as file:
            for row, line in enumerate(file, 1):
                start, end = end, end + len(line)
                try:
                    name, answer = read_answer(line)
                except DAMAGE as error:
                    unreadable.append(row)
                    reason = reason or " ".join(repr(error).split())[:_ERROR]
                    continue
                index = self._index(name, f"row {row} of {path}")
                answered += 1
                if isinstance(answer, str):
                    self.errors.setdefault(index, answer)
                elif index in self:
                    repeated.append(row)
                else:
                    self._places[index] = number, start
                    self._count(answer)
        if unreadable:
            self.problems.append(
                f"{path}: {len(unreadable):,} rows are no answers, the first is row "
                f"{unreadable[0]} ({reason})"
            )
        if repeated:
            self.problems.append(
                f"{path}: {len(repeated):,} captions have an answer already, the first in row "
                f"{repeated[0]}; their first answers count"
            )
        if not answered:
            self.problems.append(f"{path} holds no answers")

    def _index(self, name: str, where: str) -> int:
        match = re.fullmatch(r"(.*)-(\d{1,9})", name)
        if match is None or match[1] != self._request or not 0 < int(match[2]) <= len(self._places):
            raise ValueError(
                f"{where} answers another request: its custom_id is {name[:_ERROR]!r}, and this "
                f"request has {self._request}-1 to {self._request}-{len(self._places)}; name the "
                "answers to its own batch files"
            )
        return int(match[2]) - 1

    def _count(self, answer: Answer) -> None:
        self.models[answer.model or "unnamed"] += 1
        self.tokens[0] += answer.prompt_tokens
        self.tokens[1] += answer.completion_tokens
