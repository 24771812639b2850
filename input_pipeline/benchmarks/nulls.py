"""Nulls of evaluation sets: scores that can be had from the texts alone, without the image.

Chance supposes that the options are alike. Four nulls do not:

  shorter, longer  the caption with fewer (more) letters is right
  blind            n-grams and length, fitted on other folds (hard_texts/blind.py)
  ceiling          the best score of any model whose text side is a bag of words

A null belongs to the published set: the tie policy, `count` and the options of a run do not change
it. `nulls.csv` has those of the files that were here, with the files' sha256.
"""

import contextlib
import csv
import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline.case import Average, Benchmark, Case

TABLE = Path(__file__).with_name("nulls.csv")
CACHE = ".nulls.json"  # in the folder of all sets
# of the computation; a cached value of another version is computed again
VERSION = 3
# A text's bag: "Dog's" is a word, case and punctuation are none. Same-word shares of SugarCrepe's
# swap_att and swap_obj are then 61.3 and 66.9 %, as in embeddings-benchmark/mteb#5314.
_WORD = re.compile(r"[\w']+")
SHARES = ("chance", "shorter", "longer", "ceiling", "blind")


class Null(NamedTuple):
    """Nulls of one metric on a set or a subset.

    subset: label of the kind "subset", or the group itself; "": all cases, each judged within its
      subset if it does not tell the answer (`subsets`).   metric: of the set's protocol.
    cases: number of cases.
    chance to blind: shares from 0 to 1; ties count as if they were broken at random.
    sha256: of the annotation file of the subset (`Benchmark.files`); "" if unknown.
    """

    benchmark: str
    subset: str
    metric: str
    cases: int
    chance: float
    shorter: float
    longer: float
    ceiling: float
    blind: float
    sha256: str


# Scores of the texts of each case -> credit of each case, a metric without its images.
Credit = Callable[[Sequence[np.ndarray]], np.ndarray]


class _Metric(NamedTuple):
    """A metric of a protocol, without the image.

    texts: a case -> its texts, the one that differs from all others first: the correct caption, or
      of a triplet the negative.   sign: 1 if the first text must have the highest score, -1 if the
      lowest.   credit: of the scores of `texts`.   chance: of a case's number of texts.
    """

    texts: Callable[[Case], tuple[str, ...]]
    credit: Credit
    chance: Callable[[int], float]
    sign: int = 1


def _captions(case: Case) -> tuple[str, ...]:
    return case.captions


def _first(scores: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([(s[0] == s.max()) / (s == s.max()).sum() for s in scores])


def _tied(chance: float) -> Credit:
    """Credit of a pair: both images prefer the same caption, so one of them is wrong; at a tie
    chance."""
    return lambda scores: np.array([chance * (s[0] == s[1]) for s in scores])


_MACRO = Average(("subset",))
# Of a pair: the first caption is told from the second one. No score of a model, but where a set has
# edited captions with edited images, a model that finds both edits needs no match between them.
FIRST_CAPTION = "first_caption"
METRICS: Mapping[str, Mapping[str, _Metric]] = {  # protocol -> metric
    "choice": {"accuracy": _Metric(_captions, _first, lambda n: 1 / n)},
    "triplet": {
        "augmented_accuracy": _Metric(
            lambda case: (case.captions[1], case.captions[0], case.meta["positive"]),
            lambda scores: _first([-s for s in scores]), lambda n: 1 / n, -1,
        ),
        "original_accuracy": _Metric(_captions, _first, lambda n: 1 / n),
    },
    "pairs": {
        # the mean credit of the two images of a pair, whatever the scores
        "individual_accuracy": _Metric(_captions, lambda s: np.full(len(s), 0.5), lambda n: 1 / 2),
        "pair_accuracy": _Metric(_captions, _tied(1 / 4), lambda n: 1 / 4),
        "group_score": _Metric(_captions, _tied(1 / 6), lambda n: 1 / 6),
        FIRST_CAPTION: _Metric(_captions, _first, lambda n: 1 / 2),
    },
}  # fmt: skip


def benchmark_nulls(benchmark: Benchmark, protocol: str, cache: Path | None = None) -> list[Null]:
    """Nulls of a whole set and of its subsets; none for a protocol without wrong texts.

    Rows of `nulls.csv` for the same files are taken, others are computed and kept in the JSON file
    `cache`. Cases whose options are images have the nulls of chance: all have the same text.
    """
    rows, stored = [], _read_cache(cache)
    if protocol not in METRICS:
        return []
    number = len(stored)
    for label, cases in subsets(benchmark.cases).items():
        sha256 = _sha256(benchmark, label)
        known = table().get((benchmark.name, label, sha256))
        if known is None:
            key = digest(protocol, cases)
            if key not in stored:
                stored[key] = {
                    metric: {name: float(share.mean()) for name, share in shares.items()}
                    for metric, shares in _credits(cases, protocol).items()
                }
            known = [
                Null(benchmark.name, label, metric, len(cases), **shares, sha256=sha256)
                for metric, shares in stored[key].items()
            ]
        rows += known
    if cache and len(stored) > number:
        with contextlib.suppress(OSError):  # a folder that is only read: computed again
            cache.write_text(json.dumps(stored))
    return _with_totals(benchmark, rows)


@functools.cache
def table() -> dict[tuple[str, str, str], list[Null]]:
    """Rows of `nulls.csv` by benchmark, subset and sha256; sets with subsets have no row of all."""
    rows: dict[tuple[str, str, str], list[Null]] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shares = {name: float(row.pop(name)) for name in SHARES}
            null = Null(**{**row, "cases": int(row["cases"])}, **shares)
            rows.setdefault((null.benchmark, null.subset, null.sha256), []).append(null)
    return rows


def write(path: Path, rows: Iterable[Null]) -> None:
    """Writes rows in the form of `nulls.csv`: subsets, and all cases of a set without subsets."""
    rows = list(rows)
    parted = {row.benchmark for row in rows if row.subset}
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Null._fields)
        for row in rows:
            if row.subset or row.benchmark not in parted:
                lines.writerow([f"{x:.6g}" if isinstance(x, float) else x for x in row])


def case_credits(benchmark: Benchmark, protocol: str) -> dict[str, dict[str, np.ndarray]]:
    """Metric -> "ceiling", "blind" -> credit of each case of a whole set, (cases,), from 0 to 1.

    Pairs have no blind credit: the texts of a pair are right and wrong equally often.
    """
    row_of = {case.id: index for index, case in enumerate(benchmark.cases)}
    names = ("ceiling",) if protocol == "pairs" else ("ceiling", "blind")
    credits = {
        metric: {name: np.zeros(len(row_of)) for name in names}
        for metric in METRICS.get(protocol, {})
    }
    for cases in subsets(benchmark.cases).values() if credits else ():
        rows = [row_of[case.id] for case in cases]
        for metric, shares in _credits(cases, protocol, names).items():
            for name in names:
                credits[metric][name][rows] = shares[name]
    return credits


def _with_totals(benchmark: Benchmark, rows: Sequence[Null]) -> list[Null]:
    """The rows of subsets after those of all cases: by cases, and as the mean over subsets if the
    set has it (`accuracy_macro`)."""
    totals = []
    for metric in dict.fromkeys(row.metric for row in rows if row.subset):
        parts = [row for row in rows if row.metric == metric]
        weights = {"": [row.cases for row in parts]}
        if _MACRO in benchmark.averages.values():
            weights["_macro"] = [1] * len(parts)
        for end, weight in weights.items():
            means = [np.average([getattr(row, name) for row in parts], weights=weight)
                     for name in SHARES]  # fmt: skip
            count, sha256 = sum(row.cases for row in parts), _sha256(benchmark, "")
            totals.append(
                Null(benchmark.name, "", f"{metric}{end}", count, *map(float, means), sha256)
            )
    return [*totals, *rows]


def _sha256(benchmark: Benchmark, subset: str) -> str:
    return benchmark.files.get(subset, benchmark.files.get("", ""))


def digest(protocol: str, cases: Sequence[Case]) -> str:
    """Hash of all that the nulls of cases depend on."""
    content = [
        (case.captions, case.meta.get("positive"), len(case.images), subset_of(case))
        for case in cases
    ]
    return hashlib.sha256(repr((VERSION, protocol, content, _groups(cases))).encode()).hexdigest()


def _read_cache(path: Path | None) -> dict[str, Any]:
    """Computed nulls by digest; {} if the file is missing or damaged: they are computed again."""
    with contextlib.suppress(OSError, ValueError):
        cached = json.loads(path.read_text()) if path else {}
        return cached if isinstance(cached, dict) else {}
    return {}


def subsets(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Cases by subset, within which nulls are computed; all under "" if the right caption picks the
    subset (`gives_away`), since a reader of the texts does not know it then."""
    is_given = gives_away(cases)
    parts: dict[str, list[Case]] = {}
    for case in cases:
        parts.setdefault("" if is_given else subset_of(case), []).append(case)
    return parts


def gives_away(cases: Sequence[Case]) -> bool:
    """True if subsets tell which caption is right: in most cases of one, two captions differ in
    words of which one is always right in each subset, but not the same in all.

    As in What'sUp's four ways: "on" beats "left" in the subset on_under, and loses in left_right.
    """
    totals = Counter(map(subset_of, cases))
    if len(totals) < 2:
        return False
    pairs = [(subset_of(case), _differences(case.captions)) for case in cases]
    right: dict[frozenset[str], dict[str, list[str]]] = {}  # words -> subset -> right words
    for subset, case_pairs in pairs:
        for pair in case_pairs:
            right.setdefault(frozenset(pair), {}).setdefault(subset, []).append(pair[0])
    known = set()
    for words, by_subset in right.items():
        always = [{*each} for each in by_subset.values() if len(each) > 1]  # once is no rule
        if all(len(each) == 1 for each in always) and len(set().union(*always)) > 1:
            known.add(words)
    given = Counter(subset for subset, of in pairs if not known.isdisjoint(map(frozenset, of)))
    return any(2 * number > totals[subset] for subset, number in given.items())


def _differences(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Words of the first text that another lacks, and the reverse; of the same words, the texts."""
    first, pairs = Counter(bag(texts[0])), []
    for text in texts[1:]:
        other = Counter(bag(text))
        left, right = ((a - b).elements() for a, b in ((first, other), (other, first)))
        pairs.append((" ".join(left), " ".join(right)) if first != other else (texts[0], text))
    return [pair for pair in pairs if pair[0] != pair[1]]


def subset_of(case: Case) -> str:
    """Label of a case's subset, by which nulls are computed; "" if its set has none."""
    if isinstance(case.group, Mapping):
        return str(case.group.get("subset", ""))
    return case.group if isinstance(case.group, str) else ""


def bag(text: str) -> tuple[str, ...]:
    """The words of a text without their order."""
    return tuple(sorted(_WORD.findall(text.lower())))


def _credits(
    cases: Sequence[Case], protocol: str, names: Sequence[str] = SHARES
) -> dict[str, dict[str, np.ndarray]]:
    """Metric -> name of `SHARES` -> credit of each case; "blind" is chance unless in `names`."""
    metrics = METRICS[protocol]
    # of one caption and several images, all options have the same text
    chance = np.array([1 / max(1, len(case.images)) for case in cases])
    image_credits = dict.fromkeys(SHARES, chance) | {"ceiling": np.ones(len(cases))}
    has_texts = np.array([len(case.captions) > 1 for case in cases])
    credits = {name: {share: image_credits[share].copy() for share in SHARES} for name in metrics}
    with_texts = [case for case, has in zip(cases, has_texts, strict=True) if has]
    scores: dict[Callable[[Case], tuple[str, ...]], list[np.ndarray]] = {}
    for name, metric in metrics.items() if with_texts else ():
        if metric.texts not in scores and "blind" not in names:
            scores[metric.texts] = [np.zeros(len(metric.texts(case))) for case in with_texts]
        elif metric.texts not in scores:
            from vlc_jax.input_pipeline.hard_texts import blind  # scikit-learn takes a second

            texts = [_stripped(metric, case) for case in with_texts]
            scores[metric.texts] = blind.option_scores(texts, _groups(with_texts))
        made = _text_credits(with_texts, metric, scores[metric.texts], protocol)
        for share, credit in made.items():
            credits[name][share][has_texts] = credit
    return credits


def _stripped(metric: _Metric, case: Case) -> tuple[str, ...]:
    """`metric.texts` without white space at the ends: more wrong captions of authors' files have
    it, and the tokenizers of CLIPs drop it."""
    return tuple(text.strip() for text in metric.texts(case))


def _text_credits(
    cases: Sequence[Case], metric: _Metric, blind_scores: Sequence[np.ndarray], protocol: str
) -> dict[str, np.ndarray]:
    """Name of `SHARES` -> credit of each case, whose options are texts."""
    texts = [_stripped(metric, case) for case in cases]
    lengths = [np.array([float(len(text)) for text in each]) for each in texts]
    bags = [[bag(text) for text in each] for each in texts]
    # a bag of words can at best set the first text's bag apart from all others
    apart = [metric.sign * np.array([other == each[0] for other in each], float) for each in bags]
    ceiling = metric.credit(apart)
    if protocol == "pairs":  # different bags can be matched with the images
        ceiling = np.where([each[0] == each[1] for each in bags], ceiling, 1.0)
    return {
        "chance": np.array([metric.chance(len(each)) for each in texts]),
        "shorter": metric.credit([-scores for scores in lengths]),
        "longer": metric.credit(lengths),
        "ceiling": ceiling,
        "blind": metric.credit([metric.sign * scores for scores in blind_scores]),
    }


def _groups(cases: Sequence[Case]) -> list[str]:
    """The group of each case; a group lies in one fold. It is the image or, in a set that asks most
    of its texts both ways, once as the right one and once as the wrong one, the options.

    A fold of such a set would be fitted on the opposite of its own cases, and fall below chance.
    """
    options = [frozenset(case.captions) for case in cases]
    right: dict[frozenset[str], set[str]] = {}
    for key, case in zip(options, cases, strict=True):
        right.setdefault(key, set()).add(case.captions[0])
    both_ways = [len(right[key]) > 1 for key in options]
    if 2 * sum(both_ways) > len(cases):
        return ["\n".join(sorted(key)) for key in options]
    return [str(case.meta.get("record", f"case {case.id}")) for case in cases]
