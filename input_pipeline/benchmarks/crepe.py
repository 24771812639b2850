"""CREPE: a region of a Visual Genome image, its caption, and hard negatives.

Ma et al., "CREPE: Can Vision-Language Foundation Models Reason Compositionally?" (CVPR 2023); read
like github.com/RAIVNLab/CREPE. Unverified: the tables were not available. `accuracy` is the paper's
recall at 1. The authors' code has no tie rule (an unstable sort).
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import Crop, DataError
from vlc_jax.input_pipeline.sources import cells
from vlc_jax.input_pipeline.sources.region_captions import BOX, box

TRAINING = ("cc12m", "yfcc", "laion")
SPLITS = ("seen_compounds", "unseen_compounds")
SYSTEMATICITY_NEGATIVES = ("atom", "comp", "combined")
# Kind -> number of cases of all complexities, inferred from vl_compo's table: all 202 recalls of a
# kind are multiples of 1 / number.
PRODUCTIVITY_NEGATIVES = published.ORIGINS["crepe_productivity"].cases
COMPLEXITIES = tuple(range(4, 13))  # atoms per caption


@published.reader
def crepe_systematicity(
    files: published.Files,
    training: str = "laion",
    negatives: tuple[str, ...] = SYSTEMATICITY_NEGATIVES,
) -> Benchmark:
    """Captions of compounds seen or unseen in a training set, each against hard negatives.

    accuracy_macro, the headline: mean over the two splits and the kinds of negatives.
    accuracy/split=unseen_compounds etc.: per split and kind.
    count: total number of cases.
    training: cc12m, yfcc or laion: the model's training set. The authors evaluate only models
      trained on one of them.
    negatives: atom (a word replaced), comp (words of other compounds recombined), combined (both).
    """
    published.check_options("negatives", negatives, SYSTEMATICITY_NEGATIVES)
    published.check_options("values of training", (training,), TRAINING)

    def cases() -> Iterator[Case]:
        for split in SPLITS:
            name = f"syst_vg_hard_negs_{split}_in_{training}.csv"
            for kind in negatives:
                group = {"file": f"{split}/{kind}", "split": split, "negatives": kind}
                yield from _cases(files, name, f"valid_hard_negs_{kind}", group)

    averages = {"macro": Average(("file",))}
    summary = ("accuracy_macro", "accuracy")
    return files.benchmark(cases(), averages, summary=summary)


@published.reader
def crepe_productivity(
    files: published.Files,
    negatives: tuple[str, ...] = tuple(PRODUCTIVITY_NEGATIVES),
    complexities: tuple[int, ...] = COMPLEXITIES,
) -> Benchmark:
    """42,406 captions of 4 to 12 atoms, each against five hard negatives.

    accuracy_macro, the headline: mean over kinds of negatives.
    accuracy/subset=swap, accuracy/file=swap_4 etc.: per kind, and per kind and complexity.
    count: number of cases per kind.
    negatives: atom (a word replaced), swap (two words swapped), negate (a "not" inserted).
    """
    published.check_options("negatives", negatives, PRODUCTIVITY_NEGATIVES)
    published.check_options("complexities", complexities, COMPLEXITIES)

    def cases() -> Iterator[Case]:
        for kind in negatives:
            for number in complexities:
                name = f"{kind}/prod_vg_hard_negs_{kind}_complexity_{number}.csv"
                group = {"subset": kind, "file": f"{kind}_{number}"}
                yield from _cases(files, name, "hard_negs", group)

    summary = ("accuracy_macro", "accuracy")
    return files.benchmark(cases(), published.SUBSET_MACRO, summary=summary)


def _cases(files: published.Files, name: str, column: str, group: dict[str, str]) -> Iterator[Case]:
    rows = files.table(name, "caption", *BOX, column, image_id=fields.image_name)
    for number, row in enumerate(rows):
        where = f"{files.folder / name}: case {number}"
        wrong = cells.read(row, column, where)
        if not isinstance(wrong, list) or not wrong or not all(isinstance(w, str) for w in wrong):
            raise DataError(f"{where} needs a list of texts in {column!r}; got {row[column]!r:.80}")
        image = files.genome_image(row["image_id"].removesuffix(".jpg") + ".jpg")
        yield Case(
            f"{group['file'].replace('/', '_')}_{published.case_id(number, row['image_id'])}",
            (Crop(image, box(row, where)),),
            (row["caption"], *wrong),
            group,
            {"record": image.name},
        )
