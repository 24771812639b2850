"""Any dataset that TensorFlow Datasets prepared as array_record; TensorFlow is not needed."""

import difflib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import prompt_texts

_DEFAULT_TEMPLATES = ("a photo of a {}",)


class TfdsSource:
    """TensorFlow Datasets: a record per example of a prepared dataset.

    directory: the folder that holds `dataset_info.json`; or name and data_dir (default: the
      environment variable TFDS_DATA_DIR, then ~/tensorflow_datasets), searched for such a folder.
    split: anything tfds understands, "train[:90%]" too.
    image, caption, id: names of features; a feature inside another is named with a dot
      ("captions.text" in coco_captions). Captions may be one text or a list of texts.
    label: for classification sets, a class feature instead of captions; the captions are
      `templates` with the class name (underscores as spaces) in place of {}; the number is
      `meta["label"]` and `classes` holds all names. A list of classes is `meta["labels"]`.

    Prepare a dataset with `download_and_prepare(file_format="array_record")`. Raises ValueError for
    missing folders, splits and features, DataError for unreadable data.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        name: str | None = None,
        data_dir: str | Path | None = None,
        directory: str | Path | None = None,
        image: str = "image",
        caption: str | None = None,
        label: str | None = None,
        id: str | None = None,
        templates: Sequence[str] = _DEFAULT_TEMPLATES,
    ) -> None:
        try:
            import tensorflow_datasets as tfds
        except ModuleNotFoundError as error:
            raise ValueError(
                f"the source tfds needs {error.name}: pip install 'vlc_jax[tfds]'"
            ) from error
        if (name is None) == (directory is None):
            raise ValueError("a tfds source needs either name (and data_dir) or directory")
        folder = Path(directory) if directory is not None else _find(str(name), data_dir)
        _check_format(folder)
        builder = tfds.builder_from_directory(folder)
        if caption is None and label is None:
            caption = "caption"
        self._image, self._caption, self._label, self._id = image, caption, label, id
        for option, feature in (
            ("image", image),
            ("caption", caption),
            ("label", label),
            ("id", id),
        ):
            _check_feature(builder.info.features, option, feature)
        known = sorted(builder.info.splits)
        if split.partition("[")[0] not in (*known, "all") and "+" not in split:
            raise ValueError(f"{folder} has the splits {known}; got {split!r}")
        # Encoded bytes, so that image_ops.py decodes the images of all sources in the same way.
        skip = {image: tfds.decode.SkipDecoding()} if "." not in image else None
        self._examples = builder.as_data_source(split, decoders=skip)
        self.classes: tuple[str, ...] = ()
        if label is not None:
            feature = _at(builder.info.features, label)
            # a sequence wraps its feature
            names = getattr(feature, "feature", feature).names
            self.classes = tuple(name.replace("_", " ") for name in names)
        self.templates = prompt_texts.templates(templates) if templates else ()
        self._prefix = f"{builder.info.full_name}/{split}"
        self.fingerprint = f"{self._prefix}/{self._digest(folder)}"

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Record:
        try:
            example = self._examples[index]
        except RuntimeError as error:
            raise DataError(f"{self._prefix}: example {index} cannot be read: {error}") from error
        record_id = str(index) if self._id is None else _text(_at(example, self._id))
        group, meta, labels = None, {}, ()
        if self._label is not None:
            labels = np.asarray(_at(example, self._label))
            if labels.ndim:
                labels = np.unique(labels)
                meta = {"labels": tuple(labels.tolist())}
            else:
                meta, group = {"label": int(labels)}, self.classes[int(labels)]
        return Record(
            id=f"{self._prefix}/{record_id}",
            image=_at(example, self._image),
            captions=self._captions(example, np.atleast_1d(labels).astype(int)),
            group=group,
            meta=meta,
        )

    def _captions(self, example: dict[str, Any], labels: np.ndarray) -> list[str]:
        if self._caption is not None:
            value = _at(example, self._caption)
            return [_text(value)] if isinstance(value, bytes | str) else [_text(v) for v in value]
        return [template.format(self.classes[n]) for n in labels for template in self.templates]

    def _digest(self, folder: Path) -> str:
        options = [self._image, self._caption, self._label, self._id, self.templates]
        content = json.dumps(options).encode()
        for file in ("dataset_info.json", "features.json"):
            content += (folder / file).read_bytes()
        return hashlib.sha256(content).hexdigest()[:16]


def _find(name: str, data_dir: str | Path | None) -> Path:
    root = Path(data_dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
    folders = sorted(info.parent for info in (root / name).rglob("dataset_info.json"))
    if len(folders) == 1:
        return folders[0]
    if folders:
        raise ValueError(
            f"{root / name} holds several prepared datasets, choose one with directory=...: "
            + ", ".join(map(str, folders))
        )
    others = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    raise ValueError(
        f"no prepared dataset {name!r} in {root}; it holds {others}. Prepare it with "
        f"tfds.builder({name!r}, file_format='array_record').download_and_prepare()"
    )


def _check_format(folder: Path) -> None:
    try:
        info = json.loads((folder / "dataset_info.json").read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{folder} is not a prepared dataset: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{folder}/dataset_info.json is not JSON: {error}") from error
    if not isinstance(info, dict):
        raise DataError(f"{folder}/dataset_info.json holds no JSON object")
    file_format = info.get("fileFormat", "tfrecord")
    if file_format != "array_record":
        raise ValueError(
            f"{folder} was prepared as {file_format}, which cannot be read at random; prepare it "
            "again with file_format='array_record'"
        )


def _check_feature(features: Any, option: str, feature: str | None) -> None:
    if feature is None:
        return
    try:
        _at(features, feature)
    except (KeyError, TypeError, AttributeError):
        known = _names(features)
        near = difflib.get_close_matches(feature, known, 1, cutoff=0.3)
        hint = f"; did you mean {option}={near[0]!r}?" if near else ""
        raise ValueError(f"no feature {feature!r} ({option}); features: {known}{hint}") from None


def _names(features: Any, prefix: str = "") -> list[str]:
    names = []
    for key in features:
        # a sequence wraps its feature
        inner = getattr(features[key], "feature", features[key])
        names += _names(inner, f"{prefix}{key}.") if hasattr(inner, "keys") else [prefix + key]
    return names


def _at(tree: Any, path: str) -> Any:
    """The value at a dotted path, in features and in examples alike."""
    for key in path.split("."):
        tree = [item[key] for item in tree] if isinstance(tree, list) else tree[key]
    return tree


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
