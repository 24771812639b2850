"""DAC's training data: a file of dense captions for each image, by a language model or of segments.

Doveh et al. 2023, "Dense and aligned captions", the files of github.com/SivanDoveh/DAC: folders
quality_captions (BLIP-2's caption of each image), LLM_dense (GPT-Neo's sentences) and SAM_dense
(BLIP-2's caption of each of SAM's segments). Segmenter and captioner run elsewhere.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError, Record, check_text, path_below
from vlc_jax.input_pipeline.sources import image_files, json_annotations

_KIND = "dac_dense"
# files, spread over the source, whose content is part of the fingerprint
_HASHED = 100
_FORMS = (
    '{"caption": [a text per segment]}, a list of texts, or {"image": {"width", "height"}, '
    '"annotations": [{"area", "caption"}]}, SA-1B\'s form with a caption for each segment'
)


class DacSource:
    """Images with a caption and dense captions, which are its hard positives (a bag).

    captions: folder with NAME.json for the image NAME, {"positive_caption": [the caption]}.
    dense: folder with NAME.json: {"caption": [a text per segment]} (SAM_dense); a list of texts
      (LLM_dense); or an annotation of SA-1B, {"image": {"width": w, "height": h}, "annotations":
      [{"area": pixels, "caption": text}, ...]}, other fields being ignored.
    images: the folder of the images NAME.
    min_area: (SA-1B's form) share of the image below which a segment is left out; the authors' .01.
    Records are the images with both files, by name. A file of another form is a DataError of its
    record. The fingerprint has all names, and the content of 100 files: other edits go unnoticed.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        captions: str | Path,
        dense: str | Path,
        images: str | Path,
        min_area: float = 0.01,
    ) -> None:
        if split not in ("train", "all"):
            raise ValueError(f"split {split!r}: DAC's files are one split, 'train' (or 'all')")
        if not 0 <= min_area < 1:
            raise ValueError(f"min_area is a share in [0, 1); got {min_area}")
        self._captions, self._dense, self._images = Path(captions), Path(dense), Path(images)
        self._min_area = min_area
        folders = {"captions": self._captions, "dense": self._dense, "images": self._images}
        for option, folder in folders.items():
            if not folder.is_dir():
                raise ValueError(f"{option}: there is no folder {folder}, of DAC's data")
        both = _names(self._captions), _names(self._dense)
        self._names = sorted(both[0] & both[1])
        if not self._names:
            raise DataError(
                f"no image has a file NAME.json in both folders: {len(both[0]):,} in {captions}, "
                f"{len(both[1]):,} in {dense}; the files are called like 0001.jpg.json"
            )
        alone, known = both[0] ^ both[1], both[0] | both[1]
        reason = "images have one of the two files only,"
        json_annotations.mention(self._dense, len(alone), len(known), reason)
        # names, not paths: the data may be moved
        digest = hashlib.sha256(f"{min_area}\n".encode())
        for name in self._names:
            digest.update(f"{name}\n".encode())
        checked = self._names[:: max(1, len(self._names) // _HASHED)]
        for name in checked:
            for folder in (self._captions, self._dense):
                digest.update((folder / f"{name}.json").read_bytes())
        self.fingerprint = f"dac/{digest.hexdigest()[:32]}"
        self.image_sizes = image_files.sizes(checked, lambda name: [self._images / name], "images")

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Record:
        name = self._names[index]
        dense = self._texts(name)
        return Record(
            id=name,
            image=path_below(self._images, name),
            captions=[self._caption(name)],
            positives=[dense],
            positive_kinds=[[_KIND] * len(dense)],
        )

    def _caption(self, name: str) -> str:
        path = self._captions / f"{name}.json"
        match _read(path):
            case {"positive_caption": [str(text), *_]} if text.strip():
                return _checked(path, [text])[0]
        raise DataError(f'{path} is not {{"positive_caption": [a text]}}')

    def _texts(self, name: str) -> list[str]:
        """The dense captions of an image, none of them empty."""
        path = self._dense / f"{name}.json"
        match _read(path):
            case {"caption": list(texts)} | list(texts):
                pass
            case {"image": {"width": w, "height": h}, "annotations": list(segments)}:
                texts = self._segment_texts(path, segments, w, h)
            case _:
                raise DataError(f"{path} has none of the forms {_FORMS}")
        return _checked(path, texts)

    def _segment_texts(self, path: Path, segments: list[Any], width: Any, height: Any) -> list[Any]:
        """Captions of the segments that are large enough."""
        if not all(isinstance(side, int) and side > 0 for side in (width, height)):
            raise DataError(f"{path}: width and height are pixels; got {width!r} and {height!r}")
        texts = []
        for number, segment in enumerate(segments):
            match segment:
                case {"area": int() | float() as area, "caption": str(text)}:
                    pass
                case _:
                    raise DataError(
                        f"{path}: segment {number} has an area and a caption; got {segment!r:.80}"
                    )
            if not 0 <= area <= width * height:
                raise DataError(
                    f"{path}: segment {number} has an area of 0 to {width * height:,} pixels; got "
                    f"{area!r:.40}"
                )
            texts += [text] if area >= self._min_area * width * height else []
        return texts


def _names(folder: Path) -> set[str]:
    """Names of the images that have a file in the folder."""
    suffix = ".json"
    return {
        each.name.removesuffix(suffix)
        for each in os.scandir(folder)
        if each.name.endswith(suffix) and each.name != suffix
    }


def _read(path: Path) -> Any:
    try:
        return json_annotations.load(path)
    except ValueError as error:
        raise DataError(str(error)) from error


def _checked(path: Path, texts: Iterable[Any]) -> list[str]:
    """The texts that are not blank. Raises DataError for one that is no text."""
    checked = []
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{path}: a dense caption is text; got {text!r:.80}")
        if text.strip():
            check_text(text, f"{path}: a dense caption")
            checked.append(text)
    return checked
