"""A null of evaluation sets: how often a language model prefers the true caption, without images.

  vlc-jax plausibility --decoder SmolLM2-135M.gguf --root sets --sets sugarcrepe \\
    --out plausibility.jsonl

DECODER: a Hugging Face folder of Llama, Mistral, Phi-3 or Gemma, or a GGUF file. Per set and
subset: the share of cases whose first caption, the correct one, has the highest log-probability,
per token and in sum, with Wilson intervals; ties count as if they were broken at random. Sets whose
cases have one caption have no such null; sets of pairs (`pairs`: an image for each caption) are
refused, since both captions are correct and the null cancels.

--limit: cases of a subset, drawn with a fixed seed. OUT has the log-probability of every text; the
same command, also with a larger --limit, computes only texts that it lacks.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vlc_jax.devices import runtime
from vlc_jax.encode.plausibility import Plausibility, plausibilities
from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.evaluators.stats import wilson
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, READERS, nulls, protocol_of
from vlc_jax.input_pipeline.case import Case
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.hard_texts import blind
from vlc_jax.input_pipeline.stores import progress, text_file
from vlc_jax.tools import command, write_texts


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("plausibility", __doc__ or "")
    add = parser.add_argument
    add("--decoder", required=True, help="folder of the language model, or .gguf")
    add("--root", type=Path, required=True, help="folder of all sets")
    add("--sets", nargs="+", required=True, choices=sorted(PUBLISHED), metavar="SET")
    add("--limit", type=command_line.positive, help="cases of each subset; default: all")
    add("--out", type=Path, required=True, metavar="X.jsonl", help="log-probabilities of the texts")
    add("--batch-size", type=command_line.positive, default=16, help="texts at a time")
    return parser


def measure(args: argparse.Namespace) -> str:
    """Runs or resumes the command; returns the table."""
    for name in args.sets:
        if protocol_of(name) == "pairs":
            raise UsageError(
                f"{name} has an image for each caption: both are correct, leave it out"
            )
    if args.out.is_dir():
        raise UsageError(f"--out {args.out} is a folder; name a file")
    with usage_errors():
        parts = {
            f"{name}/{subset}".rstrip("/"): cases
            for name in args.sets
            for subset, cases in _subsets(READERS[name](root=args.root).cases, args.limit).items()
        }
    if not parts:
        raise UsageError(f"{', '.join(args.sets)}: no case has several captions")
    runtime.connect(None, None, None)
    model = write_texts.load(args.decoder)
    known = _read(args.out, model.name)
    texts = dict.fromkeys(text for cases in parts.values() for case in cases for text in case)
    missing = [text for text in texts if text not in known]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a", encoding="utf-8") as file, progress.bar("texts", len(missing)) as bar:
        done = 0

        def keep(rows: Sequence[int], found: Sequence[Plausibility]) -> None:
            nonlocal done
            for row, each in zip(rows, found, strict=True):
                known[missing[row]] = each
                file.write(json.dumps([model.name, missing[row], *each]) + "\n")
            file.flush()
            done += len(rows)
            bar(done)

        plausibilities(model, missing, args.batch_size, keep)
    lines = [f"{'set':<28} {'cases':>6}   per token, %         in sum, %"]
    for name, cases in parts.items():
        shares = [_share(cases, {text: score(x) for text, x in known.items()}) for score in SCORES]
        lines.append(f"{name:<28} {len(cases):>6}   {shares[0]:<20} {shares[1]}".rstrip())
    return "\n".join(lines)


SCORES = (lambda x: x.mean, lambda x: x.total)  # per token, in sum


def _subsets(cases: Sequence[Case], limit: int | None) -> dict[str, list[tuple[str, ...]]]:
    """Captions of each case with several, the correct one first, by subset."""
    several = [case for case in cases if len(case.captions) > 1]
    parts = {
        subset: [tuple(case.captions) for case in part]
        for subset, part in nulls.subsets(several).items()
    }
    for name, part in parts.items() if limit else ():
        drawn = np.random.default_rng(0).permutation(len(part))[:limit]
        parts[name] = [part[index] for index in drawn]
    return parts


def _share(cases: Sequence[Sequence[str]], scores: Mapping[str, float]) -> str:
    """The share of cases whose first text has the highest score: "62.0 56.1-67.5"."""
    credit = blind.credit([np.array([scores[text] for text in case]) for case in cases])
    value = float(credit.mean())
    low, high = wilson(value, len(credit))
    return f"{100 * value:.1f} {100 * low:.1f}–{100 * high:.1f}"


def _read(path: Path, model: str) -> dict[str, Plausibility]:
    """Finished texts. Raises UsageError for a file of another model, or a damaged one."""
    known: dict[str, Plausibility] = {}
    for line in text_file.whole_lines(path):
        try:
            name, text, total, tokens = json.loads(line)
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path} is damaged ({error}): name another --out") from error
        if name != model:
            raise UsageError(f"{path} has log-probabilities of {name}, not of {model}")
        known[text] = Plausibility(total, tokens)
    return known


main = command.main(_parser, measure)

if __name__ == "__main__":
    sys.exit(main())
