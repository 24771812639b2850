"""Command: hard positives written by a large language model, one file line per caption.

  python -m input_pipeline.hard_texts.llm replace captions_train2017.json \\
      --base-url http://localhost:8000/v1 --model meta-llama/Llama-2-70b-chat-hf --out hp/replace

replace exchanges one word for a synonym; swap exchanges what stands on both sides of "and", in
captions that have the word and fewer than 15 words. Any endpoint of OpenAI's chat completions
protocol will do: OpenAI itself, vLLM, llama.cpp, ... Its key, if it wants one, is read from the
environment variable OPENAI_API_KEY.

Captions come from COCO captions JSON (in the order of its annotations), from a column of a JSONL,
TSV, CSV or JSON table, or from a .txt file with a caption in each line. OUT holds

  replace_hp.jsonl  line k is the hard positive of caption k, a JSON string; "None" without one
  raw.jsonl         the answers as they came, in the order in which they came
  summary.json      the request, counts, why captions have none, tokens, cost

Every answer is on disk before the next question is asked: a run that was stopped or killed
continues with the same command and asks nothing twice. The endpoint, --limit, --concurrency,
--retries and the prices may differ when it does. Exit code 0: done; 2: wrong request; 3: captions
or answers that cannot be read; 30: the endpoint is out of order, try later; 130: interrupted.
"""

import argparse
import asyncio
import hashlib
import json
import os
import sys
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from input_pipeline import addresses, command_line
from input_pipeline.hard_texts.llm import captions as caption_files
from input_pipeline.hard_texts.llm import client, log, prompts
from input_pipeline.record import DataError

_OPENAI = "https://api.openai.com/v1"
_LETTERS_PER_TOKEN = 4  # of English, a rule of thumb for --dry-run
_CONNECTIONS = 1_000  # that the client library opens at most


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _dry_run(options) if options.dry_run else _run(options)
    except DataError as error:
        return _refuse(str(error), 3)
    except client.EndpointError as error:
        return _refuse(f"{error}; the same command continues", 30)
    except (ValueError, OSError) as error:
        return _refuse(str(error), 2)
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return 130


def _refuse(message: str, code: int) -> int:
    """Prints an error, without the key: it may be in an address, or in what an endpoint says."""
    print(f"error: {client.without_key(message, _key())}", file=sys.stderr)
    return code


def _key() -> str | None:
    return os.environ.get("OPENAI_API_KEY", "").strip() or None


def _run(options: argparse.Namespace) -> int:
    captions = caption_files.read(Path(options.captions), options.column)
    request = _request(options, captions)
    endpoint = _endpoint(options)
    client.check_library()
    prices = options.price_in, options.price_out
    with log.open_log(Path(options.out), request, captions, prices) as answers:
        meter = log.Meter(answers, _wanted(options, captions))

        def store(index: int, answer: prompts.Answer) -> None:
            answers.add(index, answer)
            meter.show()

        if any(True for _ in _questions(options, request, captions, answers)):
            answers.begin(client.without_key(endpoint.base_url, endpoint.key))
            questions = _questions(options, request, captions, answers)
            try:
                asyncio.run(client.ask_all(endpoint, questions, options.concurrency, store))
            finally:
                meter.end()
                answers.save()
        print(answers.finish(len(_first(options, captions))))
    return 0


def _request(options: argparse.Namespace, captions: Sequence[str]) -> dict[str, Any]:
    """All that decides what the answers are, but the endpoint, which may move between runs."""
    kind = prompts.KINDS[options.kind]
    prompt = Path(options.prompt).read_text("utf-8") if options.prompt else kind.prompt
    if prompts.PLACE not in prompt:
        raise ValueError(f"{options.prompt} has no {prompts.PLACE}, the place of the caption")
    fields = {"max_tokens": options.max_tokens or kind.max_tokens}
    fields |= {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed}
    fields |= command_line.parse_options(options.option)
    if reserved := sorted({"model", "messages", "stream", "n"} & fields.keys()):
        raise ValueError(f"--option cannot set {reserved[0]!r}")
    return {
        "kind": options.kind,
        "model": options.model,
        "fields": {name: value for name, value in fields.items() if value is not None},
        "captions": len(captions),
        "captions_sha256": _sha256(json.dumps(captions)),
        "prompt_sha256": _sha256(prompt),
        "prompt": prompt,
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _endpoint(options: argparse.Namespace) -> client.Endpoint:
    """Raises ValueError for an address or a key that cannot be; messages never show the key."""
    try:
        address = urllib.parse.urlsplit(options.base_url)
        is_address = address.scheme in ("http", "https") and address.hostname
        is_address = is_address and (address.port is None or address.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(f"--base-url is an http address; got {options.base_url!r}")
    if address.username or address.password:
        raise ValueError("--base-url holds a name or password; a key belongs in OPENAI_API_KEY")
    key = _key()
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ValueError("OPENAI_API_KEY holds letters that no key has; was it copied whole?")
    if key is None and options.base_url == _OPENAI:
        raise ValueError(f"{_OPENAI} wants a key in OPENAI_API_KEY; or name another --base-url")
    return client.Endpoint(options.base_url, key, options.model, options.retries, options.timeout)


def _first(options: argparse.Namespace, captions: Sequence[str]) -> Sequence[str]:
    return captions if options.limit is None else captions[: options.limit]


def _wanted(options: argparse.Namespace, captions: Sequence[str]) -> int:
    """Number of captions that suit the prompt."""
    unfit = prompts.KINDS[options.kind].unfit
    return sum(unfit(caption) is None for caption in _first(options, captions))


def _questions(
    options: argparse.Namespace,
    request: Mapping[str, Any],
    captions: Sequence[str],
    answered: log.Log | None,
) -> Iterator[client.Question]:
    """One for every caption that can have a hard positive and has no answer yet.

    Each has a seed of its own, seed + line - 1: the same draws for all would make them alike.
    """
    unfit = prompts.KINDS[options.kind].unfit
    for index, caption in enumerate(_first(options, captions)):
        if unfit(caption) is None and (answered is None or index not in answered):
            fields = dict(request["fields"])
            if isinstance(fields.get("seed"), int):
                fields["seed"] += index
            prompt = prompts.fill(request["prompt"], caption)
            yield client.Question(index, prompt, fields)


def _dry_run(options: argparse.Namespace) -> int:
    """Asks nothing, writes nothing: prompts as they would be sent, tokens and cost."""
    captions = caption_files.read(Path(options.captions), options.column)
    request = _request(options, captions)
    letters, answers, count = 0, 0, 0
    for question in _questions(options, request, captions, None):
        if count < 3:
            print(f"--- line {question.index + 1}, {question.fields}\n{question.prompt}")
        count += 1
        letters += len(question.prompt)
        answers += len(captions[question.index])
    tokens = letters // _LETTERS_PER_TOKEN, answers // _LETTERS_PER_TOKEN
    cost = log.cost(tokens, (options.price_in, options.price_out))
    print(
        f"---\n{len(_first(options, captions)):,} captions, {count:,} to ask; about "
        f"{tokens[0]:,} tokens in and {tokens[1]:,} out (at {_LETTERS_PER_TOKEN} letters a token), "
        + ("no prices given" if cost is None else f"cost about {cost:,.2f}")
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m input_pipeline.hard_texts.llm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("kind", choices=prompts.KINDS)
    add("captions", help="COCO captions JSON, a table (JSONL, TSV, CSV, JSON) or a .txt file")
    add("--column", default="caption", help="of a table; default: caption")
    add("--out", required=True, help="folder of this request")
    add("--model", required=True, help="as the endpoint calls it")
    add(
        "--base-url",
        default=os.environ.get("OPENAI_BASE_URL") or _OPENAI,
        help=f"of the endpoint, usually ends with /v1; default: OPENAI_BASE_URL or {_OPENAI}",
    )
    add("--prompt", metavar="FILE", help=f"another prompt, with {prompts.PLACE} in its place")
    add(
        "--max-tokens",
        type=command_line.positive,
        help="longest answer; default: the paper's 30 for replace, 20 for swap",
    )
    settings = "default: Llama-2-chat's own {}, which is what the paper samples with"
    add("--temperature", type=float, default=0.6, help=settings.format(0.6))
    add("--top-p", type=float, default=0.9, help=settings.format(0.9))
    add("--seed", type=int, default=0, help="line k is asked with SEED + k - 1; default: 0")
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any field of the request, e.g. top_k=50; NAME=null leaves one out, e.g. where a "
        "model takes no temperature; may be repeated",
    )
    add("--concurrency", type=_concurrency, default=16, help="questions at a time; default: 16")
    add("--retries", type=_count, default=8, help="of a question, with growing pauses; default: 8")
    add("--timeout", type=_seconds, default=120.0, help="seconds for a whole answer; default: 120")
    add("--price-in", type=_price, help="of a million tokens of prompts, in any currency")
    add("--price-out", type=_price, help="of a million tokens of answers")
    add(
        "--limit",
        type=command_line.positive,
        help="only the first LIMIT captions; a later run goes on",
    )
    add("--dry-run", action="store_true", help="show prompts, tokens and cost; ask nothing")
    return parser


def _concurrency(text: str) -> int:
    if (number := command_line.positive(text)) > _CONNECTIONS:
        raise argparse.ArgumentTypeError(f"at most {_CONNECTIONS:,} are possible; got {text}")
    return number


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"an integer of at least 0 is needed; got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    if not (number := _price(text)):
        raise argparse.ArgumentTypeError(f"a number above 0 is needed; got {text!r}")
    return number


def _price(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of at least 0 is needed; got {text!r}")
    return number


if __name__ == "__main__":
    sys.exit(main())
