"""Texts of a language model in this process: it answers the batch of vlc-jax write_hard_texts.

  vlc-jax write_hard_texts ask replace captions_train2017.json --model Llama-2-7b-chat-hf \\
      --form text --temperature 0 --out hp
  vlc-jax write_texts hp/batch.jsonl --decoder Llama-2-7b-chat-hf --out hp/answers.jsonl
  vlc-jax write_hard_texts read hp/answers.jsonl --out hp

The prompt is plain text without a chat template, as in most of the papers, and is continued
greedily. DECODER is a Hugging Face folder of Llama, Mistral, Phi-3, Gemma or MPT: config.json,
weights and tokenizer; or a GGUF file of Llama's architecture. Answers are appended as they are
made: after a kill the same command continues.
"""

import argparse
import contextlib
import errno
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vlc_jax.devices import runtime
from vlc_jax.encode import complete
from vlc_jax.errors import UsageError, WeightsError, usage_errors
from vlc_jax.input_pipeline.commands import command_line as commands
from vlc_jax.input_pipeline.commands import parts
from vlc_jax.input_pipeline.hard_texts.llm import batch
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import progress
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import lm
from vlc_jax.tools import command
from vlc_jax.weights import files, llava, lm_config

DTYPES = ("auto", "float32", "bfloat16")
# of a request; seed and top_p have no effect on greedy decoding
_FIELDS = {"model", "prompt", "max_tokens", "stop", "temperature", "seed", "top_p"}
_MAX_TOKENS = 2**20


def write(args: argparse.Namespace) -> str:
    """Runs or resumes the command; returns the summary line."""
    path, out = Path(args.batch), Path(args.out)
    # before the weights are read
    names = {question.name for question in questions(path)}
    if not names:
        raise DataError(f"{path} holds no requests")
    runtime.connect(None, None, None)
    model = load(args.decoder, args.dtype)
    with open_answers(out, model.name) as (file, done):
        if done and not _requests(done) & _requests(names):
            raise UsageError(f"{out} has answers to another request; name another --out")
        waiting = (question for question in questions(path) if question.name not in done)
        count = len(names & done)
        with progress.bar("writing texts", len(names), count) as advance:
            for name, answer in complete.answers(model, waiting, args.batch_size):
                line = batch.answer_line(name, answer)
                # one write per line: a kill or a full disk cuts the last one, which the next start
                # removes
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, "cannot write all of an answer", str(out))
                count += 1
                advance(count)
    return f"{count:,} requests are answered: {out}"


def _requests(names: set[str]) -> set[str]:
    return {name.rpartition("-")[0] for name in names}


def questions(path: Path) -> Iterator[complete.Question]:
    """The requests of a batch file. Raises DataError for a damaged row or a name that is there
    twice, UsageError for a request that is not of a plain text or not greedy."""
    names = set()
    with path.open("rb") as file:
        for row, line in enumerate(file, 1):
            where = f"row {row} of {path}"
            try:
                request = json.loads(line)
                name, body = request["custom_id"], request["body"]
                if refusal := _refusal(request["url"], body):
                    raise UsageError(f"{where}: {refusal}")
                stop = body.get("stop") or ()
                stops = (stop,) if isinstance(stop, str) else tuple(stop)
                if not all(isinstance(each, str) for each in (name, body["prompt"], *stops)):
                    raise TypeError("custom_id, prompt and stop are texts")
                if not 0 < body["max_tokens"] < _MAX_TOKENS or name in names:
                    raise ValueError("custom_id is there twice, or max_tokens is no length")
            except batch.DAMAGE as error:
                raise DataError(f"{where} is no request ({error!r})") from error
            names.add(name)
            yield complete.Question(name, body["prompt"], body["max_tokens"], stops)


def _refusal(url: str, body: Mapping[str, Any]) -> str | None:
    """The reason why this command does not answer a request."""
    if url != batch.URLS["text"]:
        return f"{url} needs a chat template; ask with --form text, for plain texts"
    if unknown := body.keys() - _FIELDS:
        return f"this command does not know the field {min(unknown)!r}; leave it out"
    if body.get("temperature") != 0:
        return (
            f"temperature is {body.get('temperature')}, and this command decodes greedily; ask "
            "with --temperature 0"
        )
    return None


@contextlib.contextmanager
def open_answers(path: Path, model: str) -> Iterator[tuple[io.RawIOBase, set[str]]]:
    """Yields a new or begun file of answers, locked and at its end, and the names that it has.

    Raises UsageError if the file is in use or has answers of another model, DataError for damage.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    done, end = set(), 0
    with path.open("ab", buffering=0) as file, path.open("rb") as before:
        with usage_errors():
            parts.lock(file, path)
        for row, line in enumerate(before, 1):
            if not line.endswith(b"\n"):
                # the process was killed in the middle of this write
                break
            try:
                name, answer = batch.read_answer(line)
            except batch.DAMAGE as error:
                raise DataError(
                    f"row {row} of {path} is damaged ({error!r}); remove the row, and its request "
                    "is answered again"
                ) from error
            if getattr(answer, "model", None) != model:
                raise UsageError(
                    f"{path} was begun with another model: row {row} has {answer!r:.200}, not of "
                    f"{model}; name another --out"
                )
            done.add(name)
            end += len(line)
        file.truncate(end)
        yield file, done
        os.fsync(file)


def load(folder: str | Path, dtype: str = "auto") -> complete.LanguageModel:
    """The language model in a folder; its name is the folder's name and a hash of its parameters.

    dtype: dtype of parameters and activations, one of DTYPES; auto: float32 on a CPU, else
    bfloat16. Raises WeightsError for files that do not fit, UsageError for a model with an image
    tower.
    """
    folder = Path(folder)
    sizes = llava.read_sizes(folder)
    if "image" in sizes:
        raise UsageError(f"{folder} holds a model of images and texts; name a language model")
    kind = runtime.matrix_dtype(runtime.platform_name()) if dtype == "auto" else dtype
    decoder = lm.from_sizes(sizes["lm"], dtype=jnp.dtype(kind), param_dtype=jnp.dtype(kind))
    shapes = {"lm": jax.eval_shape(partial(lm.init, decoder), jax.random.key(0))}
    digest = hashlib.sha256()

    def put(path: str, array: np.ndarray) -> jax.Array:
        digest.update(f"{path} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8))
        return jnp.asarray(array)

    params = llava.load(folder, sizes, shapes, put=put, dtype=jnp.dtype(kind))["lm"]
    config = llava.read_config(folder)
    return complete.LanguageModel(
        name=f"{folder.resolve().name}@{digest.hexdigest()[:12]}",
        decoder=decoder,
        params=params,
        tokenizer=DecoderTokenizer(folder),
        ends=_ends(folder, config),
        positions=lm_config.positions(sizes["family"]).read(config, str(folder)),
    )


def _ends(folder: Path, config: dict[str, Any]) -> list[int]:
    """Ids that end an answer. Raises WeightsError if no file contains them."""
    path = folder / "generation_config.json"
    ends = files.read_json(path).get("eos_token_id") if path.exists() else None
    ends = config.get("eos_token_id") if ends is None else ends
    if ends is None:
        raise WeightsError(f"{folder}: neither config.json nor {path.name} has eos_token_id")
    return ends if isinstance(ends, list) else [ends]


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("write_texts", __doc__)
    add = parser.add_argument
    add("batch", help="requests of `vlc-jax write_hard_texts ask`")
    add("--out", required=True, help="file of the answers; one that was begun continues")
    add("--decoder", required=True, help="folder of the language model, or .gguf")
    add("--batch-size", type=commands.positive, default=32, help="prompts")
    add("--dtype", choices=DTYPES, default="auto", help="default: %(default)s")
    return parser


main = command.main(_parser, write)

if __name__ == "__main__":
    sys.exit(main())
