"""Handwritten digits with captions: 1,797 images, scikit-learn's copy of the UCI test set."""

import hashlib

import numpy as np

from vlc_jax.input_pipeline.record import Record

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEMPLATES = (
    "a photo of the digit {}",
    "a handwritten {}",
    "the number {} written by hand",
    "a picture of the digit {}",
)
# of the digits of each class
SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}
# fixed for good: the split is part of the benchmark
_SHUFFLE_SEED = 0


def vocabulary() -> tuple[str, ...]:
    """Every word of the captions, sorted."""
    words = {word for template in TEMPLATES for word in template.split() if word != "{}"}
    return tuple(sorted(words | set(CLASSES)))


class DigitsSource:
    """Digits of a split: train, validation or test, a fixed 70, 10 and 20 % of every class.

    The 8 x 8 grey images (17 levels, dark background) come enlarged to `size` pixels, bicubic, as
    uint8 RGB. `meta["label"]` is the digit. The captions are all templates, in order.
    """

    classes = CLASSES
    templates = TEMPLATES

    def __init__(self, split: str = "train", *, size: int = 32) -> None:
        # slow to import, and not needed once the pixels are here
        from sklearn import datasets

        if split not in SHARES:
            raise ValueError(f"digits has the splits {sorted(SHARES)}; got {split!r}")
        if size < 8:
            raise ValueError(f"digits are 8 x 8 pixels; size must be at least 8, got {size}")
        digits = datasets.load_digits()
        # One generator over all classes, the same for every split: the splits are disjoint.
        rng = np.random.default_rng(_SHUFFLE_SEED)
        chosen = []
        for label in range(10):
            members = rng.permutation(np.flatnonzero(digits.target == label))
            first = round(len(members) * SHARES["train"])
            second = first + round(len(members) * SHARES["validation"])
            parts = dict(zip(SHARES, np.split(members, [first, second]), strict=True))
            chosen.append(parts[split])
        self._numbers = np.sort(np.concatenate(chosen))
        self._labels = digits.target[self._numbers]
        self._pixels = np.round(digits.images[self._numbers] * (255 / 16)).astype(np.uint8)
        self._size = size
        content = hashlib.sha256(self._pixels.tobytes() + self._labels.astype(np.uint8).tobytes())
        self.fingerprint = f"digits/{split}/{size}/{content.hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Record:
        from PIL import Image

        label = int(self._labels[index])
        size = (self._size, self._size)
        grey = Image.fromarray(self._pixels[index]).resize(size, Image.Resampling.BICUBIC)
        return Record(
            id=f"digits/{self._numbers[index]}",
            image=np.asarray(grey.convert("RGB")),
            captions=[template.format(CLASSES[label]) for template in TEMPLATES],
            group=CLASSES[label],
            meta={"label": label},
        )
