"""Tars of images and labels, as CLIP_benchmark writes its data sets."""

import hashlib
import io
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import tar_samples
from vlc_jax.input_pipeline.stores import any_path, text_file

_CLASS, _VECTOR = "cls", "npy"
_CUT = "a download that was stopped? Download it again"


class LabelledTars:
    """A record per sample of 0.tar, 1.tar, ... in a folder, in this order.

    A sample is KEY.webp, .png or .jpg and either KEY.cls, the number of its class, or KEY.npy, a
    vector with a 1 for each of its classes. `meta` has "label", or "labels" of all samples of a
    folder with vectors.

    num_classes: labels are below it. Raises ValueError without tars; DataError for another number
    of tars than nshards.txt says, a truncated tar, a sample without image or label, and labels that
    do not fit.
    """

    def __init__(self, folder: Path, num_classes: int) -> None:
        self.classes = ()
        self._paths = _tars(folder)
        digest = hashlib.sha256()
        self._keys: list[str] = []
        self._spans: list[tuple[int, int, int]] = []
        self._labels: list[tuple[int, ...]] = []
        kinds = set()
        for number, path in enumerate(self._paths):
            digest.update(path.name.encode())
            labels = (_CLASS, _VECTOR)
            for sample in tar_samples.samples(path, digest, labels, labels, _CUT):
                where = f"sample {sample.key} of {path}"
                if len(sample.parts) != 2 or tar_samples.IMAGE not in sample.parts:
                    raise DataError(
                        f"{where} needs an image and a .cls or .npy; of these it has "
                        f"{', '.join(sample.parts)}"
                    )
                if tar_samples.TWICE in sample.parts.values():
                    raise DataError(f"{where} has two images or two labels")
                ((kind, document),) = sample.documents.items()
                kinds.add(kind)
                self._keys.append(f"{path.stem}/{sample.key}")
                self._spans.append((number, *sample.parts[tar_samples.IMAGE]))
                self._labels.append(_labels(kind, document, num_classes, where))
        if len(kinds) != 1:
            content = "labels and vectors of labels" if kinds else "no samples"
            raise DataError(f"the tars of {folder} hold {content}")
        self._field = "label" if kinds == {_CLASS} else "labels"
        self.fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Record:
        number, offset, size = self._spans[index]
        try:
            (image,) = any_path.read(self._paths[number], (offset, size))
        except OSError as error:
            raise DataError(f"{self._paths[number]} cannot be read: {error}") from error
        labels = self._labels[index]
        value = labels[0] if self._field == "label" else labels
        return Record(self._keys[index], image, (), meta={self._field: value})


def _tars(folder: Path) -> list[Path]:
    found = (path for path in folder.glob("*.tar") if not path.name.startswith("._"))
    tars = sorted(found, key=lambda path: (len(path.stem), path.stem))
    if not tars:
        raise ValueError(f"{folder} has no tars")
    file = folder / "nshards.txt"
    number = text_file.read(file).strip() if file.is_file() else str(len(tars))
    if number != str(len(tars)):
        raise DataError(
            f"{file} says {number!r:.20}, and there are {len(tars)} tars; download the others"
        )
    return tars


def _labels(kind: str, document: bytes, num_classes: int, where: str) -> tuple[int, ...]:
    try:
        if kind == _CLASS:
            labels = (int(document),)
        else:
            vector = np.load(io.BytesIO(document), allow_pickle=False)
            if vector.shape != (num_classes,) or not np.isin(vector, (0, 1)).all():
                raise ValueError(
                    f"a vector of zeros and ones for {num_classes} classes; got shape "
                    f"{vector.shape}"
                )
            labels = tuple(np.flatnonzero(vector).tolist())
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{where} has a damaged label: {error}") from error
    if not all(0 <= label < num_classes for label in labels):
        raise DataError(
            f"{where} has the label {labels[0]}, and there are {num_classes} classes; -1 marks a "
            "split without labels"
        )
    return labels
