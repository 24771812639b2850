"""Nulls beside an evaluation's metrics: scores that can be had from the texts, without the image.

  blind            of a classifier of texts, fitted on other folds of the set (hard_texts/blind.py)
  ceiling          the best score of any model whose text side is a bag of words
  grounded_METRIC  METRIC over the cases that the blind classifier does not get right

They are computed from the texts, in a few CPU seconds per set, and not shipped per case: a set
whose files nobody had seen has them as well, and so do the scenes. `add` is given the published
set whole: `count` and the tie policy do not change which cases the classifier gets right.
"""

import contextlib
import inspect
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vlc_jax.evaluators import GROUNDED, PROTOCOLS, EvalResult, groups
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, READERS, Benchmark, nulls, protocol_of
from vlc_jax.types.setup import BenchmarkSetup

# A classifier of fewer texts has learned nothing: its score is noise.
FEWEST = 50
# metric -> name of the same one in nulls.METRICS
_ALIASES = {"text_score": "pair_accuracy"}

Credits = Mapping[str, Mapping[str, np.ndarray]]


def add(result: EvalResult, benchmark: Benchmark, credits: Credits) -> None:
    """Adds nulls and grounded metrics to a result, and `blind` and `ceiling` to its rows of cases.

    credits: of `case_credits`, for the cases of `benchmark`.
    """
    for metric, decisions in result.decisions.items():
        shares = credits.get(metric, {})
        for name, share in shares.items():
            # a pair has two decisions
            credit = np.repeat(share, len(decisions.credit) // len(share))
            alone = decisions._replace(credit=credit, clusters=None)
            for each, estimate in groups.metrics(metric, alone, benchmark).items():
                result.nulls.setdefault(each, {})[name] = estimate.value
        missed = np.flatnonzero(shares["blind"] < 1).tolist() if "blind" in shares else []
        if missed:
            result.metrics.update(
                groups.metrics(f"{GROUNDED}{metric}", decisions.take(missed), benchmark)
            )
    for alias, metric in _ALIASES.items():
        if alias in result.metrics and metric in result.nulls:
            result.nulls[alias] = result.nulls[metric]
    row_credits = next(iter(credits.values()), {})  # of the metric behind `correct`
    for name, share in row_credits.items():
        for row, value in zip(result.per_example, share.tolist(), strict=True):
            row[name] = value


def case_credits(benchmark: Benchmark, setup: BenchmarkSetup, cache: Path | None = None) -> Credits:
    """Metric -> "blind", "ceiling" -> credit of each case of a benchmark, (cases,), from 0 to 1.

    The metric behind a case's `correct` comes first. {} if no texts are compared: by another
    protocol, by images of one caption, or with fewer than FEWEST cases. A published set is judged
    whole, whatever `count` is, unless a tagger reads it.
    cache: folder of files for other evaluations; None: none.
    """
    name = protocol_of(setup.reader)
    if name not in nulls.METRICS or setup.protocol_options.get("protocol", name) != name:
        return {}
    if not all(isinstance(text, str) for text in benchmark.texts):  # conversations
        return {}
    whole = _whole(benchmark, setup)
    if sum(len(case.captions) > 1 for case in whole.cases) < FEWEST:
        return {}
    file = cache and cache / f"{nulls.digest(name, whole.cases)[:32]}.npz"
    credits = _read(file) if file else {}
    if not credits:
        credits = nulls.case_credits(whole, name)
        if file:
            _write(file, credits)
    row_of = {case.id: row for row, case in enumerate(whole.cases)}
    rows = [row_of[case.id] for case in benchmark.cases]
    first = PROTOCOLS[name].summary[0]
    return {
        metric: {name: share[rows] for name, share in credits[metric].items()}
        for metric in sorted(credits, key=lambda metric: metric != first)
    }


def _whole(benchmark: Benchmark, setup: BenchmarkSetup) -> Benchmark:
    """The published set that `benchmark` is the beginning of."""
    reader, options = READERS[setup.reader], dict(setup.reader_options)
    # with a tagger, the rest of a set would take minutes
    is_slow = "tagger" in inspect.signature(reader).parameters
    if options.pop("count", None) is None or setup.reader not in PUBLISHED or is_slow:
        return benchmark
    whole = reader(**options)
    cases = {case.id for case in whole.cases}
    return whole if cases.issuperset(case.id for case in benchmark.cases) else benchmark


def _read(file: Path) -> dict[str, dict[str, np.ndarray]]:
    """Credits in a file; {} if it is missing or damaged: they are computed again."""
    credits: dict[str, dict[str, np.ndarray]] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        with np.load(io.BytesIO(file.read_bytes())) as arrays:
            for key in arrays.files:
                metric, name = key.split(" ")
                credits.setdefault(metric, {})[name] = arrays[key]
        return credits
    return {}


def _write(file: Path, credits: Credits) -> None:
    content = io.BytesIO()
    arrays = {f"{metric} {name}": x for metric, of in credits.items() for name, x in of.items()}
    np.savez_compressed(content, **arrays)
    with contextlib.suppress(OSError):  # a folder that is only read: computed again
        file.parent.mkdir(parents=True, exist_ok=True)
        stores.replace(file, content.getvalue())
