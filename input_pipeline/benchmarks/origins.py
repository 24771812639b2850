"""Origins of the files of published evaluation sets, from sets.csv."""

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of a published evaluation set, whose files are in a folder ROOT shared by all sets: a
    row of sets.csv.

    protocol: a key of vlc_jax.evaluators.PROTOCOLS.
    folder: folder of the annotations in ROOT.   files: annotations in `folder`; * in patterns.
    images: folder in ROOT to which image names are relative.   image: one of these names, where
      they lie in folders below.
    source: address of annotations and images.   licence: of the annotations.
    cases: published number of cases, if known; for subsets {subset: number}, where the subset is
      the label of kind "subset" in `Case.group`.
    overlap: data sets that share its images: check training on them for leaks.
    by_hand: what to do for files that no address of downloads.csv gives, without which the set is
      not whole.
    """

    protocol: str
    folder: str
    files: tuple[str, ...]
    images: str
    source: str
    licence: str
    cases: int | Mapping[str, int] | None = None
    overlap: str = ""
    image: str = ""
    by_hand: str = ""

    @property
    def how_to_get(self) -> str:
        """Instruction for a user who lacks the files."""
        return self.instruction(self.files)

    def instruction(self, files: Sequence[str], has_images: bool = False) -> str:
        """Instruction for a user who lacks these annotations, and the images unless he has them."""
        places = [f"{', '.join(files)} into ROOT/{self.folder}"] if files else []
        if not has_images:
            example = f", such as {self.image}," if self.image else ""
            places.append(f"the images{example} into ROOT/{self.images}")
        return f"put {' and '.join(places)}; they come from {self.source} (licence: {self.licence})"


def _read_origins() -> dict[str, Origin]:
    """Set -> its row of sets.csv, where spaces separate files, and the numbers SUBSET:CASES."""
    origins = {}
    with Path(__file__).with_name("sets.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = [each.rpartition(":") for each in row["cases"].split()]
            cases = {subset: int(number) for subset, _, number in numbers}
            row |= {"cases": cases.get("", cases or None), "files": tuple(row["files"].split())}
            name = row.pop("set")
            origins[name] = Origin(**row)
    return origins


ORIGINS = _read_origins()
