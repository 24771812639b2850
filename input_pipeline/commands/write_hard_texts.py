"""Command: hard positives, dense captions and units, written by a large language model.

  vlc-jax write_hard_texts ask replace captions_train2017.json --model gpt-4o-mini --out hp
  vlc-jax write_hard_texts read hp/answers.jsonl --out hp

`ask` writes requests into hp/batch.jsonl. The batch API of OpenAI (and of others that speak it),
`vllm run-batch` or `vlc-jax write_texts` answers them, and `read` takes the texts from the answers.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import addresses, command_line, parts
from vlc_jax.input_pipeline.hard_texts.llm import batch, prompts
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS, Preset, listing
from vlc_jax.input_pipeline.hard_texts.llm.results import Results
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import any_path, text_file

REQUEST = "request.json"
# Of English, OpenAI's rule of thumb: no tokenizer is needed.
_LETTERS_PER_TOKEN = 4
_RESULTS = """\
Captions come from COCO captions JSON (in the order of its annotations), from a column of a JSONL,
TSV, CSV or JSON table, or from a .txt file with a caption in each line. OUT holds

  batch.jsonl   a request for each caption that suits the preset; with --requests-per-file
                batch_001.jsonl, batch_002.jsonl, ...
  request.json  everything that determines the answers
  replace_hp.jsonl, swap_hp.jsonl   of presets with one text per caption: line k is the text of
                caption k as a JSON string, or "None". The format of the authors' files, for COCO
  table.jsonl   the rows of the captions' file with a column "positives" (and "negatives", the
                foils), and in "positive_kinds" the preset and a hash of prompt, model and sampling
  summary.json  the request and its version, counts, why captions have no text, with examples

Exit code 0: done; 2: wrong request, or answers to another one; 3: captions or answers that cannot
be read; 30: the disk is full."""


def _run(words: list[str]) -> int:
    options = _parser().parse_args(words)
    return _ask(options) if options.command == "ask" else _read(options)


def _ask(options: argparse.Namespace) -> int:
    preset, path, out = PRESETS[options.preset], Path(options.captions), Path(options.out)
    captions = caption_files.read(path, options.column)
    _check_columns(preset, path, options.column)
    request = _request(options, captions)
    count = min(options.limit or len(captions), len(captions))
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder")
    if out.exists() and (others := {entry.name for entry in out.iterdir()}):
        if REQUEST not in others:
            raise ValueError(f"{out} is not empty (it holds {min(others)}); choose another folder")
        before = _read_request(out)
        parts.check_request(out, before["request"], request)
        # what an earlier call has asked is in the results, too
        count = max(count, before["asked"])
    answers = _answers(options.missing, request)
    suitable = [k for k, text in enumerate(captions[:count]) if preset.unfit(text) is None]
    waiting = [index for index in suitable if index not in answers]
    out.mkdir(parents=True, exist_ok=True)
    about = {"path": str(path.absolute()), "column": options.column, "asked": count}
    with stores.replacing(out / REQUEST) as file:
        file.write(json.dumps(about | {"request": request}, indent=1) + "\n")
    paths = batch.write(out, _questions(request, captions, waiting), options.requests_per_file)
    size = sum(path.stat().st_size for path in paths)
    letters = sum(len(captions[index]) for index in waiting) + len(request["prompt"]) * len(waiting)
    print(
        f"{count:,} captions, {len(suitable):,} suit the preset, {len(waiting):,} requests: about "
        f"{letters // _LETTERS_PER_TOKEN:,} tokens in, {size / 1e6:,.1f} MB, {len(paths)} files"
        + (f", {paths[0]}" if paths else "")
    )
    return 0


def _read(options: argparse.Namespace) -> int:
    out = Path(options.out)
    about = _read_request(out)
    request, path = about["request"], Path(options.captions or about["path"])
    captions = caption_files.read(path, about["column"])
    parts.check_request(out, request, request | _caption_facts(captions))
    answers = _answers(options.answers, request)
    results = Results(request, captions, about["asked"], answers)
    print(results.write(out, caption_files.rows(path, about["column"])))
    return 0


def _answers(files: Sequence[str], request: Mapping[str, Any]) -> batch.Answers:
    """The answers in files; prints what is wrong with them. Raises DataError if there are none."""
    found = batch.Answers([*map(Path, files)], _name(request), request["captions"])
    if files and not len(found) and not found.errors:
        raise DataError("; ".join(found.problems))
    for problem in found.problems:
        print(f"warning: {problem}", file=sys.stderr)
    return found


def _check_columns(preset: Preset, path: Path, column: str) -> None:
    """Raises ValueError where results would overwrite a column: before answers are paid for."""
    row, _ = next(caption_files.rows(path, column))
    for name in ("positives", "positive_kinds", "negatives", "negative_kinds"):
        if name in row and (preset.has_foils or name.startswith("positive")):
            raise ValueError(
                f"{path} already has a column {name!r}, which the result would overwrite; rename "
                "it, or use the original table"
            )


def _request(options: argparse.Namespace, captions: Sequence[str]) -> dict[str, Any]:
    """Everything that determines the answers. Raises ValueError for a wrong option."""
    preset = PRESETS[options.preset]
    prompt = text_file.read(Path(options.prompt)) if options.prompt else preset.prompt
    if prompts.PLACE not in prompt:
        raise ValueError(f"{options.prompt} has no {prompts.PLACE}, the place of the caption")
    fields: dict[str, Any] = {"max_tokens": preset.max_tokens, **preset.sampling}
    # chat models end by themselves, and some of OpenAI's refuse the field
    if options.form == "text":
        fields["stop"] = list(preset.stop)
    for name in ("max_tokens", "temperature", "top_p"):
        if (value := getattr(options, name)) is not None:
            fields[name] = value
    fields |= {"seed": options.seed} | command_line.parse_options(options.option)
    if reserved := {"model", "messages", "prompt", "stream", "n"} & fields.keys():
        raise ValueError(f"--option cannot set {min(reserved)!r}")
    json.dumps(fields, allow_nan=False)  # NaN and infinity are no JSON
    return {
        "kind": options.preset,
        "model": options.model,
        "form": options.form,
        "fields": {name: value for name, value in fields.items() if value is not None},
        **_caption_facts(captions),
        "prompt_sha256": _sha256(prompt),
        "prompt": prompt,
    }


def _caption_facts(captions: Sequence[str]) -> dict[str, Any]:
    return {"captions": len(captions), "captions_sha256": _sha256(json.dumps(captions))}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _name(request: Mapping[str, Any]) -> str:
    """The start of the request's custom_ids, which tells its answers from those of others."""
    return f"{request['kind']}-{_sha256(json.dumps(request, sort_keys=True))[:12]}"


def _read_request(out: Path) -> dict[str, Any]:
    """Content of REQUEST. Raises OSError without one, DataError for a damaged one."""
    path = out / REQUEST
    try:
        about = any_path.read_json(path)
        _name(about["request"])
        is_known = about["request"]["kind"] in PRESETS
        if not is_known or not 0 < about["asked"] <= about["request"]["captions"]:
            raise ValueError("no such preset or caption")
        return about | {"path": str(about["path"]), "column": str(about["column"])}
    except batch.DAMAGE as error:
        raise DataError(f"{path} is damaged ({error!r}); run `ask` with another folder") from error


def _questions(
    request: Mapping[str, Any], captions: Sequence[str], indices: Sequence[int]
) -> Iterator[dict[str, Any]]:
    name = _name(request)
    for index in indices:
        fields = {"model": request["model"], **request["fields"]}
        if isinstance(fields.get("seed"), int):
            # equal draws for all captions would make the texts alike
            fields["seed"] += index
        prompt = prompts.fill(request["prompt"], captions[index])
        yield batch.question(f"{name}-{index + 1}", request["form"], prompt, fields)


def _parser() -> argparse.ArgumentParser:
    description = f"{__doc__}\nPresets:\n\n{listing()}\n\n{_RESULTS}"
    parser = command_line.parser("write_hard_texts", description)
    parser.add_argument(
        "--list", action="version", version=listing(), help="print the presets and exit"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{ask,read}")
    read = commands.add_parser("read", help="texts of answers")
    read.add_argument("answers", nargs="+", help="answer files, in any order")
    read.add_argument("--out", required=True, help="folder of the request")
    read.add_argument("--captions", help="their file, if it has moved since `ask`")
    ask = commands.add_parser("ask", help="batch files of requests")
    add, positive = ask.add_argument, command_line.positive
    add("preset", choices=PRESETS, metavar="PRESET", help="see vlc-jax write_hard_texts --list")
    add("captions", help="COCO captions JSON, a table (JSONL, TSV, CSV, JSON) or a .txt file")
    add("--column", default="caption", help="of a table; default: caption")
    add("--out", required=True, help="folder of this request")
    add("--model", required=True, help="its name where the batch is answered")
    add(
        "--form",
        choices=batch.URLS,
        default="chat",
        help="chat: the prompt is a message (chat/completions; the default); text: it is a plain "
        "text to be continued (completions), as in the papers and as base models need it",
    )
    add("--prompt", metavar="FILE", help=f"another prompt, with {prompts.PLACE} for the caption")
    add("--max-tokens", type=positive, help="longest answer; default: the preset's")
    add("--temperature", type=float, help="default: the preset's")
    add("--top-p", type=float, help="default: the preset's")
    add("--seed", type=int, default=0, help="line k has seed SEED + k - 1; default: 0")
    field = (
        "any field of the request, e.g. top_k=50; NAME=null leaves one out, e.g. where a model "
        "takes no temperature; may be repeated"
    )
    add("--option", **command_line.PAIRS, help=field)
    add("--limit", type=positive, help="only the first LIMIT captions; a later call takes more")
    files = "several batch files; OpenAI takes 50,000 requests and 200 MB in one"
    add("--requests-per-file", type=positive, metavar="N", help=files)
    again = "answers so far: ask only about captions without one"
    add("--missing", nargs="+", default=[], metavar="ANSWERS", help=again)
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
