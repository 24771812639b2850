"""SVO-Probes: a sentence, its image, and an image with another subject, verb or object.

Hendricks and Nematzadeh, "Probing Image-Language Transformers for Verb Understanding" (Findings of
ACL 2021), github.com/google-deepmind/svo_probes. Unverified: the table was not available; its
fields are from the README and notebook. Images must be downloaded from the table's URLs, many of
which are dead, so every copy is incomplete.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

NEGATIVES = ("subj_neg", "verb_neg", "obj_neg")  # exactly one of these fields is true
_IMAGES = ("pos_image_id", "neg_image_id")
_TRUTH = {"true": True, "false": False}


@published.reader
def svo_probes(files: published.Files) -> Benchmark:
    """Cases of a sentence, its image and a wrong image.

    accuracy, the headline: the right image has the higher score. accuracy/subj_neg, /verb_neg and
      /obj_neg: by the changed part; accuracy_macro: their mean. The paper instead classifies
      whether an image and a sentence match, averaged over right and wrong images; similarities
      have no threshold for that.
    Cases with a missing image are dropped, with a note of their number: results over different
      images are not comparable. An undecodable file (such as a saved web page) stops the
      evaluation with its name; delete such files.
    Cases without exactly one negative part are dropped, as in the authors' notebook.
    """
    rows = files.table(
        files.file, "sentence", *NEGATIVES, **dict.fromkeys(_IMAGES, fields.image_name)
    )
    cases = [case for n, row in enumerate(rows) if (case := _case(files, n, row))]
    names = _names(files.images)
    complete = [case for case in cases if all(path.name in names for path in case.images)]
    if not complete:
        raise DataError(
            f"none of {len(cases):,} cases has both images in {files.images}; "
            f"{files.origin.how_to_get}"
        )
    benchmark = files.benchmark(complete)
    notes = []
    if len(complete) < len(cases):
        notes.append(
            f"{len(cases) - len(complete):,} of {len(cases):,} cases are left out: their images "
            "are absent. Only results over the same images can be compared"
        )
    if len(cases) < len(rows):
        notes.append(f"{len(rows) - len(cases):,} cases without exactly one negative are left out")
    return published.amended(benchmark, *notes)


def _case(files: published.Files, number: int, row: Mapping[str, str]) -> Case | None:
    """The case of a row; None without exactly one negative part."""
    for field in NEGATIVES:
        if row[field].lower() not in _TRUTH:
            where = f"{files.folder / files.file}: case {number}"
            raise DataError(f"{where}: {field} is True or False; got {row[field]!r:.80}")
    kinds = [field for field in NEGATIVES if _TRUTH[row[field].lower()]]
    if len(kinds) != 1:
        return None
    names = tuple(f"{row[field]}.jpg" for field in _IMAGES)
    return Case(
        published.case_id(number, row["pos_image_id"], row["neg_image_id"]),
        tuple(map(files.image, names)),
        (row["sentence"],),
        kinds[0],
        {"record": names[0]},
    )


def _names(folder: Path) -> frozenset[str]:
    """Names of the files of a folder, by one listing: a stat per image would take too long."""
    return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()
