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

from vlc_jax.input_pipeline.commands import addresses, command_line, text_job
from vlc_jax.input_pipeline.hard_texts.llm.answers import without_key
from vlc_jax.input_pipeline.hard_texts.llm.log import Prices
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS

_EPILOG = """\
The endpoint, --limit, --concurrency, --retries and the prices may differ when a run continues. Exit
code 0: done; 2: wrong request; 3: captions or answers that cannot be read; 30: the endpoint is out
of order or the disk is full, try later; 130: interrupted."""
_OPENAI = "https://api.openai.com/v1"
# DEFAULT_CONNECTION_LIMITS of the client library; more requests would wait in its pool.
_CONNECTIONS = 1_000


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        # the key may be in a URL or in an endpoint's message
        return command_line.exit_code(_run, options, lambda text: without_key(text, _key()))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; the same command continues") from None


def _key() -> str | None:
    return os.environ.get("OPENAI_API_KEY", "").strip() or None


def _run(options: argparse.Namespace) -> int:
    prices = Prices(options.price_in, options.price_out)
    job = text_job.make(options, options.model, options.form, _fields(options), prices)
    if options.dry_run:
        print(text_job.dry_run(job))
        return 0
    key = _checked_key(options.base_url)
    try:
        import openai  # noqa: F401  # an optional dependency, which the client imports

        from vlc_jax.input_pipeline.hard_texts.llm import client
    except ImportError as error:
        raise ValueError(
            f"the client library openai cannot be imported ({error}); pip install openai"
        ) from error
    endpoint = client.Endpoint(
        base_url=options.base_url,
        key=key,
        model=options.model,
        form=options.form,
        retries=options.retries,
        timeout=options.timeout,
    )
    complete = client.completing(endpoint, options.concurrency)
    print(text_job.run(job, complete, without_key(options.base_url, key)))
    return 0


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Fields of the request: the preset's, overridden by the command line's."""
    preset = PRESETS[options.preset]
    fields: dict[str, Any] = {**preset.sampling}
    # chat models end by themselves, and some of OpenAI's refuse the field
    if options.form == "text":
        fields["stop"] = list(preset.stop)
    for name in ("temperature", "top_p"):
        if (value := getattr(options, name)) is not None:
            fields[name] = value
    fields |= {"seed": options.seed} | command_line.parse_options(options.option)
    if reserved := {"model", "messages", "prompt", "stream", "n"} & fields.keys():
        raise ValueError(f"--option cannot set {min(reserved)!r}")
    return fields


def _checked_key(base_url: str) -> str | None:
    """The key for an endpoint, None without one.

    Raises ValueError for an invalid URL or key; messages never show the key.
    """
    try:
        address = urllib.parse.urlsplit(base_url)
        is_address = address.scheme in ("http", "https") and address.hostname
        is_address = is_address and (address.port is None or address.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(f"--base-url is an http address; got {base_url!r}")
    if address.username or address.password:
        raise ValueError("--base-url holds a name or password; a key belongs in OPENAI_API_KEY")
    key = _key()
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ValueError("OPENAI_API_KEY holds letters that no key has; was it copied whole?")
    if key is None and base_url == _OPENAI:
        raise ValueError(f"{_OPENAI} needs a key in OPENAI_API_KEY; or name another --base-url")
    return key


def _parser() -> argparse.ArgumentParser:
    parser = text_job.parser("write_hard_texts", __doc__ or "", _EPILOG)
    add = parser.add_argument
    add("--model", required=True, help="its name at the endpoint")
    add(
        "--base-url",
        default=os.environ.get("OPENAI_BASE_URL") or _OPENAI,
        help=f"of the endpoint, usually ends with /v1; default: OPENAI_BASE_URL or {_OPENAI}",
    )
    add(
        "--form",
        choices=("chat", "text"),
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
    at_most_1000 = command_line.number(int, 1, _CONNECTIONS)
    add("--concurrency", type=at_most_1000, default=16, help="requests in flight; default: 16")
    retries = "per request, with growing pauses; default: 8"
    add("--retries", type=command_line.number(int, 0), default=8, help=retries)
    seconds = "for a whole answer; default: 120"
    add("--timeout", type=command_line.number(float, 0.001), default=120.0, help=seconds)
    price = command_line.number(float, 0)
    add("--price-in", type=price, help="per million tokens of prompts, in any currency")
    add("--price-out", type=price, help="per million tokens of answers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
