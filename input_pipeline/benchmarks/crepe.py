"""CREPE: a region of a Visual Genome image, its caption, and hard negatives to rank it among.

Ma et al., "CREPE: Can Vision-Language Foundation Models Reason Compositionally?" (CVPR 2023), read
as github.com/RAIVNLab/CREPE does; its tables themselves were not to be had. `accuracy` is the
paper's recall at 1. Ties have no rule there (an unstable sort).
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks import visual_genome
from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    check_options,
)
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import Crop, DataError
from vlc_jax.input_pipeline.sources import cells

TRAINING = ("cc12m", "yfcc", "laion")
SPLITS = ("seen_compounds", "unseen_compounds")
SYSTEMATICITY_NEGATIVES = ("atom", "comp", "combined")
# Kind -> cases of all complexities: that which all 202 recalls of a kind in vl_compo's table are
# multiples of.
PRODUCTIVITY_NEGATIVES = {"atom": 17_698, "swap": 7_405, "negate": 17_303}
COMPLEXITIES = tuple(range(4, 13))  # atoms of a caption
_BOX = ("x", "y", "width", "height")
SYSTEMATICITY = Origin(
    protocol="choice",
    folder="crepe/syst_hard_negatives",
    files=("syst_vg_hard_negs_*_in_*.csv",),
    images="vg",
    source="github.com/RAIVNLab/CREPE (its zip files) and visualgenome.org",
    licence="none given",
    overlap="Visual Genome, of which half are images of COCO",
)
PRODUCTIVITY = dataclasses.replace(
    SYSTEMATICITY,
    folder="crepe/prod_hard_negatives",
    files=("*/prod_vg_hard_negs_*_complexity_*.csv",),
    cases=PRODUCTIVITY_NEGATIVES,
)


def crepe_systematicity(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
    training: str = "laion",
    negatives: tuple[str, ...] = SYSTEMATICITY_NEGATIVES,
) -> Benchmark:
    """Captions whose compounds a training set has, or has not, each against wrong ones.

    accuracy_macro, the headline: the mean over the two splits and the kinds of negatives.
    accuracy/split=unseen_compounds and the like: parts of it.
    count: of cases of all.
    training: cc12m, yfcc or laion: what the model was trained on. The authors use the set for no
      other models.
    negatives: atom (a word replaced), comp (words of others combined anew), combined (both).
    """
    check_options("negatives", negatives, SYSTEMATICITY_NEGATIVES)
    check_options("values of training", (training,), TRAINING)
    files = PublishedFiles(SYSTEMATICITY, root, folder, images)

    def cases() -> Iterator[Case]:
        for split in SPLITS:
            name = f"syst_vg_hard_negs_{split}_in_{training}.csv"
            for kind in negatives:
                group = {"file": f"{split}/{kind}", "split": split, "negatives": kind}
                yield from _cases(files, name, f"valid_hard_negs_{kind}", group)

    averages = {"macro": Average(("file",))}
    summary = ("accuracy_macro", "accuracy")
    return files.benchmark("crepe_systematicity", cases(), count, averages, summary=summary)


def crepe_productivity(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
    negatives: tuple[str, ...] = tuple(PRODUCTIVITY_NEGATIVES),
    complexities: tuple[int, ...] = COMPLEXITIES,
) -> Benchmark:
    """42,406 captions of 4 to 12 atoms, each against five wrong ones.

    accuracy_macro, the headline: the mean over kinds of negatives.
    accuracy/subset=swap, accuracy/file=swap_4 and the like: of a kind, and of one complexity of it.
    count: of cases of each kind.
    negatives: atom (a word replaced), swap (two words exchanged), negate (a "not" put in).
    """
    check_options("negatives", negatives, PRODUCTIVITY_NEGATIVES)
    check_options("complexities", complexities, COMPLEXITIES)
    files = PublishedFiles(PRODUCTIVITY, root, folder, images)

    def cases() -> Iterator[Case]:
        for kind in negatives:
            for number in complexities:
                name = f"{kind}/prod_vg_hard_negs_{kind}_complexity_{number}.csv"
                group = {"subset": kind, "file": f"{kind}_{number}"}
                yield from _cases(files, name, "hard_negs", group)

    averages = {"macro": Average(("subset",))}
    summary = ("accuracy_macro", "accuracy")
    return files.benchmark("crepe_productivity", cases(), count, averages, summary=summary)


def _cases(files: PublishedFiles, name: str, column: str, group: dict[str, str]) -> Iterator[Case]:
    rows = files.table(name, "image_id", "caption", *_BOX, column)
    for number, row in enumerate(rows):
        place = f"{files.folder / name}: case {number}"
        wrong = cells.read(row, column, place)
        if not isinstance(wrong, list) or not wrong or not all(isinstance(w, str) for w in wrong):
            raise DataError(f"{place} needs a list of texts in {column!r}; got {row[column]!r:.80}")
        image = visual_genome.image(files, row["image_id"].removesuffix(".jpg") + ".jpg")
        yield Case(
            f"{group['file'].replace('/', '_')}_{case_id(number, row['image_id'])}",
            (Crop(image, _box(row, place)),),
            (row["caption"], *wrong),
            group,
            {"record": image.name},
        )


def _box(row: dict[str, str], place: str) -> tuple[int, int, int, int]:
    try:
        x, y, width, height = (int(float(row[side])) for side in _BOX)
    except (ValueError, OverflowError):
        got = {side: row[side] for side in _BOX}
        raise DataError(f"{place}: {', '.join(_BOX)} are numbers of pixels; got {got}") from None
    return x, y, x + width, y + height


READERS = {
    "crepe_systematicity": (crepe_systematicity, SYSTEMATICITY),
    "crepe_productivity": (crepe_productivity, PRODUCTIVITY),
}
