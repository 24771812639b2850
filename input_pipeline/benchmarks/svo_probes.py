"""SVO-Probes: a sentence, an image of it, and one where subject, verb or object is another.

Hendricks and Nematzadeh, "Probing Image-Language Transformers for Verb Understanding" (Findings of
ACL 2021), github.com/google-deepmind/svo_probes, whose README and notebook name the fields; the
table itself was not to be had. Images are to be downloaded by their addresses in it, many of which
have ceased to work, so nobody has all of them.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    amended,
    case_id,
)
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FILE = "svo_probes.csv"
NEGATIVES = ("subj_neg", "verb_neg", "obj_neg")  # fields, of which one is true
ORIGIN = Origin(
    protocol="choice",
    folder="svo_probes",
    files=(FILE,),
    images="svo_probes/images",
    source="github.com/google-deepmind/svo_probes (images: download pos_url as POS_IMAGE_ID.jpg "
    "and neg_url as NEG_IMAGE_ID.jpg)",
    licence="CC BY 4.0",
)
_TRUTH = {"true": True, "false": False}


def svo_probes(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
) -> Benchmark:
    """Cases of a sentence, its image and a wrong one.

    accuracy, the headline: the right image has the higher score. accuracy/subj_neg, /verb_neg and
      /obj_neg: by what differs. accuracy_macro: the mean of these. The paper asks something else of
      its models, whether an image and a sentence match, and averages over right and wrong images;
      the comparison is what works for similarities, which have no threshold.
    Cases with an absent image are left out, and a note says how many: numbers over other images are
      not comparable. An image file that is none (a web page under its name) ends the evaluation
      with its name; delete such files.
    Cases of which not exactly one part is negative are left out, as in the authors' notebook.
    """
    files = PublishedFiles(ORIGIN, root, folder, images)
    rows = files.table(FILE, "sentence", "pos_image_id", "neg_image_id", *NEGATIVES)
    cases = [case for n, row in enumerate(rows) if (case := _case(files, n, row))]
    there = _names(files.image(""))
    found = [case for case in cases if all(path.name in there for path in case.images)]
    if not found:
        raise DataError(
            f"{files.image('')} has both images of none of {len(cases):,} cases; "
            f"{ORIGIN.how_to_get}"
        )
    benchmark = files.benchmark("svo_probes", found, count)
    notes = []
    if len(found) < len(cases):
        notes.append(
            f"{len(cases) - len(found):,} of {len(cases):,} cases are left out: their images are "
            "absent. Only results over the same images can be compared"
        )
    if len(cases) < len(rows):
        notes.append(f"{len(rows) - len(cases):,} cases without exactly one negative are left out")
    return amended(benchmark, *notes)


def _case(files: PublishedFiles, number: int, row: Mapping[str, str]) -> Case | None:
    """None without exactly one negative."""
    for field in NEGATIVES:
        if row[field].lower() not in _TRUTH:
            place = f"{files.folder / FILE}: case {number}"
            raise DataError(f"{place}: {field} is True or False; got {row[field]!r:.80}")
    kinds = [field for field in NEGATIVES if _TRUTH[row[field].lower()]]
    if len(kinds) != 1:
        return None
    names = tuple(f"{row[field]}.jpg" for field in ("pos_image_id", "neg_image_id"))
    return Case(
        case_id(number, row["pos_image_id"], row["neg_image_id"]),
        tuple(map(files.image, names)),
        (row["sentence"],),
        kinds[0],
        {"record": names[0]},
    )


def _names(folder: Path) -> frozenset[str]:
    """Names of the files of a folder: one look at it, where tens of thousands are asked for."""
    return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()


READERS = {"svo_probes": (svo_probes, ORIGIN)}
