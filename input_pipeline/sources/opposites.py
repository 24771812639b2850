"""DCSM's training data: pairs of images whose captions exchange objects, attributes or a denial.

"Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025); read like toydataset_dense.py of
github.com/Raphoo/DCSM_Ideal_CLIP. `vlc-jax composites` makes such files from images of your own.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record, check_text, path_below
from vlc_jax.input_pipeline.sources import image_files, image_list, json_annotations

# The authors' names.
SPATIAL = "objaverse_train_composite_newrelations_withbg"
ATTRIBUTES = "objaverse_attributes_overlay_withbg"
SIZES = "objaverse_smallbig_withbg"
NEGATION = "negated_pairs_cocotrain_v1.json"
SETS = ("spatial", "attributes", "negation")
OPPOSITE = {"spatial": "CUTMIX_", "attributes": "MIRROR_"}  # beginning of the opposite's name

PHRASES = {
    "above": "above",
    "below": "below",
    "rightof": "to the right of",
    "leftof": "to the left of",
}
INVERSE = {"above": "below", "below": "above", "rightof": "leftof", "leftof": "rightof"}
DENIALS = ("and not", "but no", "without")
WORDINGS = 2  # of every pair: A above B, and B below A
_CHECKED = 100  # images of negation pairs that are looked up before a run starts


class Pair(NamedTuple):
    """An image and its opposite, relative to the folder.

    captions, opposites: of each wording the texts of the image, one of which is drawn at each
    reading, and those of the opposite.
    """

    name: str
    image: str
    opposite: str
    captions: tuple[tuple[str, ...], ...]
    opposites: tuple[tuple[str, ...], ...]


class DcsmSource:
    """Pairs of images that differ in where two objects are, in their attributes, or in which of two
    objects is there.

    path: the folder of objaverse_train_composite_newrelations_withbg (A_above_B.png and
      CUTMIX_A_above_B.png, the objects exchanged; above, below, leftof, rightof),
      objaverse_attributes_overlay_withbg and objaverse_smallbig_withbg (red_A_blue_B.png and
      MIRROR_red_A_blue_B.png, the attributes exchanged) and negated_pairs_cocotrain_v1.json, a list
      of {img1_path, img2_path, img1_obj: [name, other name], img2_obj}.
    images: the folder where the paths of that list start; default: `path`.
    sets: of spatial, attributes and negation, those to read.
    opposite: image: every record has the opposite image as its hard image; text: the opposite is a
      caption alone, and CUTMIX_ and MIRROR_ images are not needed (attributes of COCO's images).
    truncate: the sets have equally many pairs, drawn by `seed`, as the authors'.
    A record is an image in one of two wordings; its negatives are the captions of the opposite.
    With truncate the records of one pair of each set are neighbours, which training reads in a row:
    with six sub-batches each is of one set in one wording, as the authors'. Opposites are found by
    their id and are no records themselves.
    Raises ValueError for missing files, DataError for names and entries of another form.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        path: str | Path,
        images: str | Path | None = None,
        sets: Sequence[str] = SETS,
        opposite: str = "image",
        truncate: bool = True,
        seed: int = 0,
    ) -> None:
        if split not in ("train", "all"):
            raise ValueError(f"split {split!r}: DCSM's data are one split, 'train' (or 'all')")
        if opposite not in ("image", "text"):
            raise ValueError(f"opposite is image or text; got {opposite!r}")
        if not sets or (unknown := [name for name in sets if name not in SETS]):
            raise ValueError(f"sets are some of {SETS}; got {unknown if sets else sets!r}")
        self._folder, self._has_images = Path(path), opposite == "image"
        self.finds_more = self._has_images
        self._images = Path(images or path)
        pairs = {name: self._read(name) for name in dict.fromkeys(sets)}
        self._pairs = [(name, pair) for name, listed in pairs.items() for pair in listed]
        self.group_size = 1
        if truncate:
            least = min(map(len, pairs.values()))
            chosen = []
            for name, listed in pairs.items():
                # of each set by itself: another set leaves the choice as it is
                rng = np.random.default_rng([seed, SETS.index(name)])
                chosen.append([(name, listed[i]) for i in rng.permutation(len(listed))[:least]])
            # one of each set side by side
            self._pairs = [
                pair for side_by_side in zip(*chosen, strict=True) for pair in side_by_side
            ]
            self.group_size = WORDINGS * len(pairs)
        self._places = {f"{name}/{pair.name}": i for i, (name, pair) in enumerate(self._pairs)}
        content = hashlib.sha256(json.dumps([self._pairs, opposite]).encode()).hexdigest()
        self.fingerprint = f"dcsm/{content[:32]}"
        files = [pair.image for name, pair in self._pairs if name == "negation"]
        self.image_sizes = image_files.sizes(
            files[:: max(1, len(files) // _CHECKED)], lambda name: [self._images / name], "images"
        )

    def __len__(self) -> int:
        return WORDINGS * len(self._pairs)

    def __getitem__(self, index: int) -> Record:
        if not -len(self) <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        place, wording = divmod(index % len(self), WORDINGS)
        return self._record(place, wording, is_opposite=False)

    def find(self, record_id: str) -> Record:
        """A record, or the opposite of one: its id and "/opposite"."""
        name, _, wording = record_id.removesuffix("/opposite").rpartition("/")
        if name not in self._places or wording not in map(str, range(WORDINGS)):
            raise DataError(f"DCSM's data in {self._folder} have no record {record_id!r}")
        is_opposite = record_id.endswith("/opposite")
        return self._record(self._places[name], int(wording), is_opposite)

    def _record(self, place: int, wording: int, is_opposite: bool) -> Record:
        name, pair = self._pairs[place]
        captions, opposites = pair.captions[wording], pair.opposites[wording]
        record_id = f"{name}/{pair.name}/{wording}"
        other, image = f"{record_id}/opposite", pair.image
        if is_opposite:
            captions, opposites, image = opposites, captions, pair.opposite
            record_id, other = other, record_id
        return Record(
            id=record_id,
            image=(self._images if name == "negation" else self._folder) / image,
            captions=captions,
            negatives=[opposites] * len(captions),
            negative_kinds=[["dcsm"] * len(opposites)] * len(captions),
            hard_images=[other] if self._has_images else [],
            group=name,
        )

    def _read(self, name: str) -> list[Pair]:
        if name == "negation":
            return [*self._negations()]
        if name == "spatial":
            return [self._spatial(SPATIAL, file) for file in self._files(SPATIAL, name)]
        # sizes may be in the folder of the colours, or missing with data of your own
        folders = [folder for folder in (ATTRIBUTES, SIZES) if (self._folder / folder).is_dir()]
        return [
            self._attributes(folder, file)
            for folder in folders or [ATTRIBUTES]
            for file in self._files(folder, name)
        ]

    def _files(self, folder: str, name: str) -> list[str]:
        """Names of the images of a folder, sorted, without opposites, each of which must exist."""
        path = self._folder / folder
        if not path.is_dir():
            raise ValueError(
                f"there is no folder {path}, {name} pairs of DCSM: they come from the Google Drive "
                "folder that github.com/Raphoo/DCSM_Ideal_CLIP names, or vlc-jax composites makes "
                "them; or leave the set out (sets)"
            )
        names = {*image_list.below(path)[0]}
        if inner := sorted(each for each in names if Path(each).name != each):
            raise DataError(f"{path} has images in folders, such as {inner[0]}: move them up")
        files = sorted(each for each in names if not each.startswith(OPPOSITE[name]))
        if not files:
            raise DataError(f"{path} has no images ({', '.join(image_ops.suffixes())})")
        alone = [each for each in files if f"{OPPOSITE[name]}{each}" not in names]
        if alone and self._has_images:
            raise DataError(
                f"{path}: {len(alone):,} of {len(files):,} images have no opposite "
                f"{OPPOSITE[name]}NAME, such as {alone[0]}; add them, or set opposite='text'"
            )
        return files

    def _pair(self, folder: str, file: str, wordings: Sequence[tuple[str, str]], name: str) -> Pair:
        captions, opposites = (tuple((texts[i],) for texts in wordings) for i in (0, 1))
        opposite = f"{folder}/{OPPOSITE[name]}{file}"
        return Pair(f"{folder}/{file}", f"{folder}/{file}", opposite, captions, opposites)

    def _spatial(self, folder: str, file: str) -> Pair:
        match PurePosixPath(file).stem.split("_"):
            case [a, relation, b] if a and b and relation in PHRASES:
                said, inverse = PHRASES[relation], PHRASES[INVERSE[relation]]
            case _:
                raise DataError(
                    f"{self._folder / folder / file} is not called A_RELATION_B with one of "
                    f"{', '.join(PHRASES)}"
                )
        texts = [
            (f"A picture of a {a} {said} a {b}", f"A picture of a {b} {said} a {a}"),
            (f"A picture of a {b} {inverse} a {a}", f"A picture of a {a} {inverse} a {b}"),
        ]
        return self._pair(folder, file, texts, "spatial")

    def _attributes(self, folder: str, file: str) -> Pair:
        match PurePosixPath(file).stem.split("_"):
            case [c, a, d, b, *_] if c and a and d and b:
                pass
            case _:
                raise DataError(
                    f"{self._folder / folder / file} is not called ATTRIBUTE_A_ATTRIBUTE_B"
                )
        text = "A picture of a {} {} and a {} {}"
        texts = [
            (text.format(c, a, d, b), text.format(d, a, c, b)),
            (text.format(d, b, c, a), text.format(c, b, d, a)),
        ]
        return self._pair(folder, file, texts, "attributes")

    def _negations(self) -> Iterator[Pair]:
        path = self._folder / NEGATION
        if not path.is_file():
            raise ValueError(
                f"there is no file {path}, DCSM's negation pairs: vlc-jax composites makes them "
                "from COCO's instances; or leave the set out (sets)"
            )
        entries = json_annotations.load(path)
        if not isinstance(entries, list) or not entries:
            raise DataError(f"{path} is no list of pairs {{img1_path, img2_path, img1_obj, ...}}")
        for number, entry in enumerate(entries):
            images, names = self._negation(entry, f"{path}: entry {number}")
            texts = [
                [
                    tuple(f"An image of a {x[i]} {no} a {y[i]}" for no in DENIALS)
                    for i in range(WORDINGS)
                ]
                for x, y in (names, names[::-1])
            ]
            yield Pair(str(number), *images, *map(tuple, texts))

    def _negation(self, entry: Any, where: str) -> tuple[list[str], list[list[str]]]:
        """The two images of an entry and the two names of the object of each."""
        images, names = [], []
        for which in ("img1", "img2"):
            image = entry.get(f"{which}_path") if isinstance(entry, dict) else None
            objects = entry.get(f"{which}_obj") if isinstance(entry, dict) else None
            names_of = objects[:WORDINGS] if isinstance(objects, list) else []
            is_named = [isinstance(each, str) and bool(each.strip()) for each in names_of]
            if not isinstance(image, str) or is_named != [True] * WORDINGS:
                raise DataError(
                    f"{where} has {which}_path, a file, and {which}_obj, two names of its object; "
                    f"got {entry!r:.120}"
                )
            image = image.replace("\\", "/")  # Windows wrote some of the authors' paths
            try:
                path_below(self._images, image)
                for name in names_of:
                    check_text(name, "a name")
            except DataError as error:
                raise DataError(f"{where}: {error}") from None
            images.append(image)
            names.append(names_of)
        return images, names
