"""Writes text vectors (text_vectors.py) with any sentence encoder; resumable."""

import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores.row_file import RowFile
from vlc_jax.input_pipeline.tokenizers import text_vectors

Encode = Callable[[Sequence[str]], np.ndarray]


class SentenceEncoder:
    """A sentence-transformers model: texts -> float32 (texts, width), with the model's pooling.

    model: its folder, or the name of a model in the local cache.

    Nothing is downloaded. Raises ValueError if the package or the model is missing.
    """

    def __init__(self, model: str, batch_size: int = 64) -> None:
        if importlib.util.find_spec("sentence_transformers") is None:
            raise ValueError(
                "--model needs the package sentence-transformers: pip install sentence-transformers"
            )
        import sentence_transformers

        try:
            self._model = sentence_transformers.SentenceTransformer(model, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"no sentence-transformers model at {model!r}: {str(error).splitlines()[0]}; name "
                "the folder of one, nothing is downloaded"
            ) from error
        self._batch_size = batch_size
        self.identity = {"model": model, "files": files_of(Path(model))}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._model.encode(
            list(texts), batch_size=self._batch_size, show_progress_bar=False
        )
        return np.asarray(vectors, np.float32)


def files_of(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a model's files, or of its one file, to detect another model."""
    paths = sorted(path for path in (folder, *folder.rglob("*")) if path.is_file())
    facts = [(str(path.relative_to(folder)), path.stat()) for path in paths]
    return [(name, fact.st_size, fact.st_mtime_ns) for name, fact in facts]


def write(
    path: str | Path,
    texts: Sequence[str],
    encode: Encode,
    *,
    identity: Any,
    encoder: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    block: int = 1024,
    advance: Callable[[int], None] = lambda done: None,
) -> text_vectors.Layout:
    """Writes the vectors of `texts` to `path` (X.npy) and the texts to X.jsonl.

    `encoder`, the options of the encoder, goes to X.encoder.json (`text_vectors.read_encoder`).
    Atomic: rows are appended to `path`.partial, `block` texts at a time, which is renamed to `path`
    when complete. After an interruption the same call resumes behind the finished rows.

    Raises ValueError if `path` exists, X.jsonl holds other texts, the partial file belongs to
    another request (texts, dtype, `identity` of the encoder), or `path` cannot hold `dtype`;
    DataError for vectors that are not finite or not one per text.
    """
    path = new_file(path, dtype)
    texts = list(dict.fromkeys(text for text in texts if text))
    if not texts:
        raise DataError("there are no texts to embed")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside, lines = path.with_suffix(".jsonl"), "".join(json.dumps(text) + "\n" for text in texts)
    if beside.exists() and beside.read_text("utf-8") != lines:
        raise ValueError(f"{beside} exists and holds other texts; name a new file")
    request = path.with_name(f"{path.name}.request.json")
    content = json.dumps([identity, dtype, hashlib.sha256(lines.encode()).hexdigest()])
    first = _encoded(encode, texts[:block], None)
    width = first.shape[1]
    header = text_vectors.header(path, len(texts), width, dtype)
    layout = text_vectors.Layout(len(header), len(texts), width, dtype)
    keep = len(texts) if _has_partial(path, request, content) else 0
    with RowFile(path, header, layout.row_bytes, keep) as file:
        if not keep:
            request.write_text(content)
        while file.done < len(texts):
            part = texts[file.done : file.done + block]
            rows = first if file.done == 0 else _encoded(encode, part, width)
            file.append(_rounded(rows, part, dtype))
            advance(file.done)
        # Texts before vectors: a finished file of vectors always has its texts.
        beside.write_text(lines, "utf-8")
        # left over from vectors that were removed
        if encoder is None:
            text_vectors.encoder_file(path).unlink(missing_ok=True)
        else:
            text_vectors.encoder_file(path).write_text(json.dumps(encoder, indent=2) + "\n")
        file.finish()
    request.unlink()
    return layout


def new_file(path: str | Path, dtype: str) -> Path:
    """The checked path of new vectors. Raises ValueError if it exists or cannot hold `dtype`."""
    path = text_vectors.checked_path(path)
    if path.exists():
        raise ValueError(f"{path} exists already; name a new file")
    if dtype not in text_vectors.DTYPES:
        raise ValueError(f"dtype is one of {', '.join(text_vectors.DTYPES)}; got {dtype!r}")
    # raises for a dtype that the format lacks
    text_vectors.header(path, 1, 1, dtype)
    return path


def _has_partial(path: Path, request: Path, content: str) -> bool:
    """True if an interrupted call left rows. Raises ValueError if its request was another."""
    partial = path.with_name(f"{path.name}.partial")
    if not (partial.exists() and request.exists()):
        return False
    if request.read_text() != content:
        raise ValueError(
            f"{partial} was begun with other texts, another dtype or another encoder: repeat that "
            "call, name a new file, or remove it"
        )
    return True


def _encoded(encode: Encode, texts: Sequence[str], width: int | None) -> np.ndarray:
    rows = encode(texts)
    if rows.ndim != 2 or len(rows) != len(texts) or width not in (None, rows.shape[1]):
        raise DataError(f"the encoder gave vectors {rows.shape} for {len(texts)} texts")
    return rows


def _rounded(rows: np.ndarray, texts: Sequence[str], dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = rows.astype(text_vectors.number(dtype))
    is_finite = np.isfinite(rounded.astype(np.float32)).all(axis=1)
    if not is_finite.all():
        text = texts[int(np.argmin(is_finite))]
        raise DataError(f"the vector of {text!r} is not finite in {dtype}; take another dtype")
    return rounded
