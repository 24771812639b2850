"""Command lines that have texts written by a local endpoint, and what they leave behind."""

import json

from tests.support import helpers
from tests.support.chat_server import Reply, Server, says, serving
from vlc_jax.input_pipeline.commands import write_hard_texts

CAPTIONS = [f"a dog and cat number {i}" for i in range(12)]


def hound(caption: str, _: int) -> Reply:
    return says(f"Output: {caption.replace('dog', 'hound')}")


def words(captions, out, url, *options, kind="replace"):
    fixed = ["--out", str(out), "--base-url", url, "--model", "tiny"]
    return [kind, str(captions), *fixed, *options]


def ask(answer, captions, *options, kind="replace", code=0) -> Server:
    """Runs the command with a server that answers; OUT is `hp` beside the captions."""
    with serving(answer) as server:
        arguments = words(captions, captions.parent / "hp", server.url, *options, kind=kind)
        assert write_hard_texts.main(arguments) == code
    return server


def positives(out, kind="replace"):
    return helpers.rows(out / f"{kind}_hp.jsonl")


def summary(out):
    return json.loads((out / "summary.json").read_text())
