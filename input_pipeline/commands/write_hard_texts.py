"""Command: hard positives, dense captions and units, written by a large language model.

  vlc-jax write_hard_texts replace captions_train2017.json \\
      --base-url http://localhost:8000/v1 --model meta-llama/Llama-2-70b-chat-hf --out hp/replace

Any endpoint of OpenAI's protocol will do: OpenAI itself, vLLM, llama.cpp, ... The environment
variable OPENAI_API_KEY holds its key, if it needs one. For a language model in a folder, without an
endpoint, use vlc-jax write_texts.
"""

import argparse
import os
import sys
import urllib.parse
from collections.abc import Sequence
from typing import Any

from vlc_jax.input_pipeline.commands import addresses, command_line, job_options
from vlc_jax.input_pipeline.hard_texts.llm import client, job
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS
from vlc_jax.input_pipeline.record import DataError

_EPILOG = """\
The endpoint, --limit, --concurrency, --retries and the prices may differ when a run continues. Exit
code 0: done; 2: wrong request; 3: captions or answers that cannot be read; 30: the endpoint is out
of order, try later; 130: interrupted."""
_OPENAI = "https://api.openai.com/v1"
_CONNECTIONS = 1_000  # limit of the client library


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
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
    """Prints an error without the key, which may be in a URL or in an endpoint's message."""
    print(f"error: {client.without_key(message, _key())}", file=sys.stderr)
    return code


def _key() -> str | None:
    return os.environ.get("OPENAI_API_KEY", "").strip() or None


def _run(options: argparse.Namespace) -> int:
    prices = options.price_in, options.price_out
    text_job = job.make(options, options.model, options.form, _fields(options), prices)
    if options.dry_run:
        print(job.dry_run(text_job))
        return 0
    endpoint = _endpoint(options)
    client.check_library()
    complete = client.completing(endpoint, options.concurrency)
    print(job.run(text_job, complete, client.without_key(endpoint.base_url, endpoint.key)))
    return 0


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Fields of the request: the preset's, overridden by the command line's."""
    preset = PRESETS[options.preset]
    fields: dict[str, Any] = {**preset.sampling}
    if options.form == "text":
        fields["stop"] = list(preset.stop)
    for name in ("temperature", "top_p"):
        if (value := getattr(options, name)) is not None:
            fields[name] = value
    fields |= {"seed": options.seed} | command_line.parse_options(options.option)
    if reserved := {"model", "messages", "prompt", "stream", "n"} & fields.keys():
        raise ValueError(f"--option cannot set {min(reserved)!r}")
    return fields


def _endpoint(options: argparse.Namespace) -> client.Endpoint:
    """The endpoint of the command line.

    Raises ValueError for an invalid URL or key; messages never show the key.
    """
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
        raise ValueError(f"{_OPENAI} needs a key in OPENAI_API_KEY; or name another --base-url")
    return client.Endpoint(
        base_url=options.base_url,
        key=key,
        model=options.model,
        form=options.form,
        retries=options.retries,
        timeout=options.timeout,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlc-jax write_hard_texts",
        description=job_options.description(__doc__ or ""),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job_options.add_options(parser)
    add = parser.add_argument
    add("--model", required=True, help="its name at the endpoint")
    add(
        "--base-url",
        default=os.environ.get("OPENAI_BASE_URL") or _OPENAI,
        help=f"of the endpoint, usually ends with /v1; default: OPENAI_BASE_URL or {_OPENAI}",
    )
    add(
        "--form",
        choices=client.FORMS,
        default="chat",
        help="chat: the prompt is a message (chat/completions; the default); text: it is a plain "
        "text to be continued (completions), as in the papers and as base models need it",
    )
    add("--temperature", type=float, help="default: the preset's")
    add("--top-p", type=float, help="default: the preset's")
    add("--seed", type=int, default=0, help="line k has seed SEED + k - 1; default: 0")
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any field of the request, e.g. top_k=50; NAME=null leaves one out, e.g. where a "
        "model takes no temperature; may be repeated",
    )
    add("--concurrency", type=_concurrency, default=16, help="requests in flight; default: 16")
    add("--retries", type=_count, default=8, help="per request, with growing pauses; default: 8")
    add("--timeout", type=_seconds, default=120.0, help="seconds for a whole answer; default: 120")
    add("--price-in", type=_price, help="per million tokens of prompts, in any currency")
    add("--price-out", type=_price, help="per million tokens of answers")
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
