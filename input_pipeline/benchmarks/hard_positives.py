"""REPLACE and SWAP: an image with a caption c, a hard negative n and a hard positive p.

Kamath et al., "The Hard Positive Truth about Vision-Language Compositionality" (ECCV 2024); read
like github.com/amitakamath/hard_positives: two lists, data/ with c and swapped_data/ with p as the
true caption, joined by position. All comparisons are strict.
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import aro, fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FOLDERS = ("data", "swapped_data")  # with captions, with hard positives
_SWAP_FILE = "visual_genome_attribution.json"


@published.reader
def replace(files: published.Files) -> Benchmark:
    """27,443 cases on whole images: "walking elephant", "jumping elephant", "strolling elephant".

    augmented_accuracy_macro, the headline, and the other _macro metrics are the paper's numbers:
    unweighted means over the subsets attributes and relations. Metrics without _macro: over cases.

    count: number of cases per subset.
    A note has the number of cases whose negative equals c or p, which no model can solve: in 15
    published relations, all of "holding", n is c, and in one attribute n is p.
    """
    # a list: all files are read before the first case, and are those of every subset
    cases = [case for subset in files.origin.cases for case in _subset(files, subset)]
    summary = ("augmented_accuracy_macro", "original_accuracy_macro", "brittleness_macro")
    benchmark = files.benchmark(cases, published.SUBSET_MACRO, summary=summary)
    equal = sum(c.captions[1] in (c.captions[0], c.meta["positive"]) for c in benchmark.cases)
    note = f"{equal} cases whose negative is equal to a correct caption cannot be answered"
    return published.amended(benchmark, *[note] if equal else [])


@published.reader
def swap(files: published.Files) -> Benchmark:
    """28,748 cases of ARO's VG-Attribution, on images cropped to a box: "the paved road and the
    white house", "the white road and the paved house", "the white house and the paved road".

    augmented_accuracy, the headline: over all cases, as in the paper.

    Without the file in swapped_data, p is rebuilt from c by swapping its two parts, and a note is
    added. Unverified: the authors' file was not available for comparison.
    """
    original, swapped = (f"{folder}/{_SWAP_FILE}" for folder in FOLDERS)
    # SWAP's c and n are those of ARO, whose folder users may already have
    aro_file = files.root / published.ORIGINS["vg_attribution"].folder / _SWAP_FILE
    if files.has(swapped):
        name, notes = original, []
        rows = _joined(files, original, swapped, **aro.BOXED)
    else:
        name = str(aro_file) if aro_file.is_file() and not files.has(original) else original
        rows = _rebuilt(files, name)
        notes = [f"hard positives were rebuilt from the captions of {name}"]
    cases = (aro.boxed_case(files, name, n, row, positive=row["positive"]) for n, row in rows)
    return published.amended(files.benchmark(cases), *notes)


def _subset(files: published.Files, subset: str) -> Iterator[Case]:
    names = (f"{folder}/vl_checklist_{subset}.json" for folder in FOLDERS)
    for number, row in _joined(files, *names):
        # prefix in the authors' repository
        image = row["image_path"].removeprefix("data/")
        yield Case(
            f"{subset}_{published.case_id(number, image)}",
            (files.image(image),),
            (row["true_caption"], row["false_caption"]),
            {"subset": subset},
            {"positive": row["positive"], "record": image},
        )


def _joined(
    files: published.Files, original: str, swapped: str, **others: published.Kind
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (position, row with its "positive") of two lists with equal images and negatives."""
    captions, others = ("true_caption", "false_caption"), {"image_path": fields.image_name} | others
    first, second = (files.objects(name, *captions, **others) for name in (original, swapped))
    if len(first) != len(second):
        raise DataError(
            f"{files.folder}: {original} has {len(first):,} cases and {swapped} {len(second):,}; "
            f"they belong together row by row"
        )
    # neither file has ids: only equal images and negatives show that the rows belong together
    for number, (row, other) in enumerate(zip(first, second, strict=True)):
        for field in ("image_path", "false_caption"):
            if row[field] != other[field]:
                raise DataError(
                    f"{files.folder}: case {number} has {field} {row[field]!r} in {original} and "
                    f"{other[field]!r} in {swapped}; the files belong together row by row"
                )
        yield number, row | {"positive": other["true_caption"]}


def _rebuilt(files: published.Files, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = files.objects(name, "true_caption", "false_caption", **aro.BOXED)
    for number, row in enumerate(rows):
        first, conjunction, second = row["true_caption"].partition(" and the ")
        if not conjunction:
            raise DataError(
                f"{files.folder / name}: case {number} is not of the form 'the A and the B'; got "
                f"{row['true_caption']!r}"
            )
        yield number, row | {"positive": f"the {second} and {first}"}
