"""Calibration of a loaded model: the probability that a text matches an image."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vlc_jax.encode.inputs import AnyImage, as_images, as_texts
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import calibration as calibrations
from vlc_jax.evaluators.calibration import Curve, Pairs
from vlc_jax.input_pipeline.images.image_key import ImageKeys
from vlc_jax.run import workdir

NAME = "calibration.json"
VERSION = 1
_AT_ONCE = 1024  # images scored between two reports of progress
Progress = Callable[[int], None]


class Calibration(NamedTuple):
    """A calibration and the figures of its held-out folds (`evaluators.calibration`).

    fingerprint: of the model whose scores it reads.   templates: of prompts, for its terms.
    """

    curve: Curve
    templates: Sequence[str]
    fingerprint: str
    figures: Mapping[str, Any]

    def write(self, folder: Path) -> None:
        """Writes calibration.json into a folder, atomically."""
        content = self._asdict() | {"curve": self.curve._asdict(), "version": VERSION}
        # not write_json, whose default=str would write a numpy array as text
        workdir.workdir_files.replace(folder / NAME, json.dumps(content, indent=1) + "\n")


def read(path: Path) -> Calibration:
    """The calibration in a file. Raises UsageError for a damaged one or one of another version."""
    content = workdir.read_object(path)
    try:
        if content.pop("version") != VERSION:
            raise UsageError(f"{path} is of another version of vlc_jax: calibrate again")
        found = Calibration(**content | {"curve": Curve(**content["curve"])})
        # of each method: a value that is missing or no number
        found.curve(np.zeros(1), calibrations.text_terms([""], found.templates))
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is damaged: {error!r}; calibrate again") from error


class Calibrated:
    """The methods of a loaded model about probabilities. Subclasses score."""

    logit_scale: float
    logit_bias: float | None
    score: Callable[..., Float[np.ndarray, "images texts"]]
    score_pairs: Callable[..., Float[np.ndarray, " pairs"]]
    save: Callable[..., None]

    @cached_property
    def score_fingerprint(self) -> str:
        """Hash of what scores depend on."""
        raise NotImplementedError

    def __init__(self, folder: Path | None):
        self._file = None if folder is None else folder / NAME

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of the model's folder, or of the last `calibrate`; None without one.

        Raises UsageError for one that is damaged, or of other weights or preprocessing.
        """
        if self._file is None or not self._file.exists():
            return None
        found = read(self._file)
        if found.fingerprint != self.score_fingerprint:
            raise UsageError(
                f"{self._file} was fitted for other weights or preprocessing (fingerprint "
                f"{found.fingerprint[:16]}) than these ({str(self.score_fingerprint)[:16]}): "
                "calibrate again, or remove the file"
            )
        return found

    def calibrate(
        self,
        images: Sequence[AnyImage],
        texts: Sequence[str],
        matches: Any,
        *,
        method: str = "platt",
        templates: Sequence[str] = (),
        wanted: Sequence[tuple[str, float]] = calibrations.WANTED,
        progress: Progress | None = None,
    ) -> Calibration:
        """Fits what `probability` gives, and returns it with figures of held-out folds; `save`
        stores it.

            model.calibrate(["a.jpg", "a.jpg", ...], ["a cat", "a dog", ...], [True, False, ...])

        matches: whether text i is of image i; or (images, texts), for every image with every text.
        method: platt | isotonic | temperature (`evaluators.calibration.fit`).
        templates: that the texts were made of, such as "a photo of a {}"; of several, each has a
          bias of its own if that pays on held-out folds.
        wanted: rates whose thresholds the figures have.
        progress: called with the number of images, or pairs, scored.
        Raises UsageError for too few pairs, or pairs without a contrast.
        """
        logits = None if self.logit_bias is None else (self.logit_scale, self.logit_bias)
        calibrations.check_method(method, logits)
        pairs = self._scored(images, texts, matches, templates, progress)
        curve, figures = calibrations.calibrate(pairs, method, logits, wanted)
        self.calibration = Calibration(curve, tuple(templates), self.score_fingerprint, figures)
        return self.calibration

    def check_calibration(
        self,
        images: Sequence[AnyImage],
        texts: Sequence[str],
        matches: Any,
        *,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Test of the probabilities on other labelled pairs (arguments as in `calibrate`):
        `is_shifted`, `p_value` and more, of `evaluators.calibration.shift`."""
        fitted = self._required()
        pairs = self._scored(images, texts, matches, fitted.templates, progress)
        return calibrations.shift(fitted.curve(pairs.scores, pairs.terms), pairs, fitted.figures)

    def probability(
        self, images: Sequence[AnyImage], texts: Sequence[str]
    ) -> Float[np.ndarray, "images texts"]:
        """Probability that each text matches each image, among pairs such as those of `calibrate`:
        where matches are rarer, probabilities are too high (`check_calibration`).

        Raises UsageError for a model without a calibration, or with that of another one.
        """
        fitted, texts = self._required(), as_texts(texts)
        scores = self.score(images, texts)
        terms = calibrations.text_terms(texts, fitted.templates)
        rows = [fitted.curve(row, terms) for row in scores]
        return np.reshape(rows, scores.shape).astype(np.float64)

    def _required(self) -> Calibration:
        if self.calibration is None:
            raise UsageError(
                f"{self!r} has no calibration, without which a score is no probability: "
                "model.calibrate(images, texts, matches), or vlc-jax calibrate"
            )
        return self.calibration

    def _scored(
        self,
        images: Sequence[AnyImage],
        texts: Sequence[str],
        matches: Any,
        templates: Sequence[str],
        progress: Progress | None,
    ) -> Pairs:
        """The scored pairs; images of equal content, as in copies of a file, are one image."""
        inputs, texts, matches = as_images(images), as_texts(texts), np.asarray(matches)
        shape = (len(inputs), len(texts)) if matches.ndim == 2 else (len(inputs),)
        if matches.shape != shape or (matches.ndim == 1 and len(texts) != len(inputs)):
            raise UsageError(
                f"matches has the shape {matches.shape}, where {len(inputs)} images and "
                f"{len(texts)} texts have one per pair, or (images, texts)"
            )
        if matches.size and not np.isin(matches, (0, 1)).all():
            raise UsageError(f"matches are True or False; got {np.setdiff1d(matches, (0, 1))[0]}")
        keys = list(map(ImageKeys(), inputs))  # also refuses missing files, before hours of scoring
        numbers = np.unique(keys, return_inverse=True)[1]
        if matches.ndim == 1:
            check_labels(numbers, texts, matches)
        each = numbers if matches.ndim == 1 else np.repeat(numbers, len(texts))
        calibrations.check_numbers(matches.ravel().astype(bool), each)
        terms, parts = calibrations.text_terms(texts, templates), []
        for start in range(0, len(inputs), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            both = (inputs[part], texts) if matches.ndim == 2 else (inputs[part], texts[part])
            parts.append((self.score if matches.ndim == 2 else self.score_pairs)(*both))
            if progress:
                progress(min(start + _AT_ONCE, len(inputs)))
        if matches.ndim == 2:
            terms = {name: np.tile(columns, (len(inputs), 1)) for name, columns in terms.items()}
        scores = np.concatenate([*parts, np.zeros(0, np.float32)], axis=None)
        return Pairs(scores.astype(np.float64), matches.ravel().astype(bool), each, terms)


def check_labels(images: np.ndarray, texts: Sequence[str], matches: np.ndarray) -> None:
    """Raises UsageError for an image and a text that match in one pair and do not in another."""
    labels: dict[tuple[int, str], bool] = {}
    odd = list[int]()
    for row, pair in enumerate(zip(images.tolist(), texts, strict=True)):
        if labels.setdefault(pair, matches[row]) != matches[row]:
            odd.append(row)
    if odd:
        raise UsageError(
            f"{len(odd)} pairs are there with both labels, first {texts[odd[0]]!r:.60} in row "
            f"{odd[0] + 1}: a pair matches or does not, leave one of them out"
        )
