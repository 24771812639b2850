"""A service that answers batch files, told by a test how, and command lines that use it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import helpers
from vlc_jax.input_pipeline.commands import write_hard_texts

CAPTIONS = [f"a dog and cat number {i}" for i in range(12)]


def reply(custom_id: str, text: str | None, finish: str = "stop") -> dict[str, Any]:
    """An answer as OpenAI and vLLM write them, to a chat and to a plain text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "text": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    body = {"model": "tiny-1", "choices": [choice | {"finish_reason": finish}], "usage": usage}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": custom_id, "response": response, "error": None}


def hound(caption: str) -> str:
    return f"Output: {caption.replace('dog', 'hound')}"


def caption_of(request: dict[str, Any]) -> str:
    body = request["body"]
    prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    return prompt.rpartition("Input: ")[2].partition("\n")[0]


def requests(out: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(out.glob("batch*.jsonl")) for row in helpers.rows(path)]


def save(path: Path, *rows: dict[str, Any]) -> Path:
    return helpers.write_rows(path, rows)


def answer(out: Path, says: Callable[[str], Any] = hound, name: str = "answers.jsonl") -> Path:
    """Answers the requests of OUT backwards. A dict that `says` returns is merged into a row."""
    rows = []
    for request in reversed(requests(out)):
        said = says(caption_of(request))
        is_row = isinstance(said, dict)
        rows.append(reply(request["custom_id"], "" if is_row else said) | (said if is_row else {}))
    return save(out / name, *rows)


def ask(captions: Path, out: Path, *options: str, kind: str = "replace") -> int:
    fixed = ["ask", kind, str(captions), "--out", str(out), "--model", "tiny"]
    return write_hard_texts.main([*fixed, *options])


def read(out: Path, *answers: Path) -> int:
    return write_hard_texts.main(["read", *map(str, answers), "--out", str(out)])


def positives(out: Path, kind: str = "replace") -> list[Any]:
    return helpers.rows(out / f"{kind}_hp.jsonl")


def summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text())
