"""A file of vectors, (items, width) in .npy or .safetensors, whose rows are computed in parts.

A part (`parts.Parts`) is a line of JSON, the reasons of unusable rows by their number in the part,
and then the rows. So a killed command continues, and workers may compute the parts.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import parts
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers import text_vectors
from vlc_jax.input_pipeline.tokenizers.sentence_encoder import Encode

# Rows of a batch, and {row: reason} of those that are unusable.
Rows = tuple[np.ndarray, Mapping[int, str]]


class Merged(NamedTuple):
    """All rows in a file that has no name yet.   bad: reason of each unusable row."""

    draft: Path
    layout: text_vectors.Layout
    bad: dict[int, str]


def content(batches: Iterable[Rows]) -> bytes:
    """The content of a part."""
    reasons, arrays, done = dict[int, str](), list[bytes](), 0
    for rows, bad in batches:
        reasons |= {done + row: reason for row, reason in bad.items()}
        arrays.append(rows.tobytes())
        done += len(rows)
    return json.dumps(reasons).encode() + b"\n" + b"".join(arrays)


def merge(work: parts.Parts, path: Path, dtype: str = "float32") -> Merged:
    """Writes the rows of all parts, in the format of `path`, into a file in the parts' folder.

    Raises as `parts.contents`, DataError for parts of different widths.
    """
    # a run removes what a killed one has left there
    draft, bad, layout = work.out / f"{uuid.uuid4().hex}{parts.PARTIAL}", dict[int, str](), None
    with draft.open("xb") as file, parts.parsing(work.out):
        for number, part in enumerate(parts.contents(work)):
            head, _, rows = part.partition(b"\n")
            first, count = work.indices(number).start, len(work.indices(number))
            bad |= {first + int(row): str(why) for row, why in stores.parse_json(head).items()}
            if layout is None:
                width = len(rows) // (count * text_vectors.number(dtype).itemsize)
                header = text_vectors.header(path, work.total, width, dtype)
                layout = text_vectors.Layout(len(header), work.total, width, dtype)
                file.write(header)
            if len(rows) != count * layout.row_bytes:
                raise ValueError(f"{count} rows of width {layout.width} have {len(rows)} bytes")
            file.write(rows)
        file.flush()
        # before the rename: a power cut must not reorder them
        os.fsync(file.fileno())
    assert layout is not None
    return Merged(draft, layout, bad)


def write(
    path: str | Path,
    texts: Sequence[str],
    encode: Encode,
    *,
    identity: Any,
    encoder: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    block: int = 1024,
) -> text_vectors.Layout:
    """Writes the vectors of `texts` to `path` (X.npy) and the texts to X.jsonl.

    `encoder`, the options of the encoder, goes to X.encoder.json (`text_vectors.read_encoder`).
    Atomic; after an interruption the same call continues with the next `block` of texts.

    Raises ValueError if `path` exists, X.jsonl holds other texts, another request (texts, dtype,
    `identity` of the encoder) was begun, or `path` cannot hold `dtype`; DataError for vectors that
    are not finite or not one per text.
    """
    path = new_file(path, dtype)
    texts = list(dict.fromkeys(text for text in texts if text))
    if not texts:
        raise DataError("there are no texts to embed")
    beside, lines = path.with_suffix(".jsonl"), "".join(json.dumps(text) + "\n" for text in texts)
    if beside.exists() and beside.read_text("utf-8") != lines:
        raise ValueError(f"{beside} exists and holds other texts; name a new file")

    def rows(numbers: range) -> bytes:
        part = texts[numbers.start : numbers.stop]
        return content([(_rounded(encode(part), part, dtype), {})])

    request = {"texts": hashlib.sha256(lines.encode()).hexdigest(), "dtype": dtype}
    request |= {"encoder": identity}
    work = parts.Parts(rows, parts.beside(path), len(texts), block, request)
    parts.run(work, "embedding")
    merged = merge(work, path, dtype)
    # Texts before vectors: a finished file of vectors always has its texts.
    stores.replace(beside, lines.encode())
    # left over from vectors that were removed
    text_vectors.encoder_file(path).unlink(missing_ok=True)
    if encoder is not None:
        options = json.dumps(encoder, indent=2) + "\n"
        stores.replace(text_vectors.encoder_file(path), options.encode())
    merged.draft.replace(path)
    parts.remove(work.out)
    return merged.layout


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


def _rounded(rows: np.ndarray, texts: Sequence[str], dtype: str) -> np.ndarray:
    """One finite vector per text in `dtype`. Raises DataError."""
    if rows.ndim != 2 or len(rows) != len(texts):
        raise DataError(f"the encoder gave vectors {rows.shape} for {len(texts)} texts")
    with np.errstate(over="ignore"):
        rounded = rows.astype(text_vectors.number(dtype))
    is_finite = np.isfinite(rounded.astype(np.float32)).all(axis=1)
    if not is_finite.all():
        text = texts[int(np.argmin(is_finite))]
        raise DataError(f"the vector of {text!r} is not finite in {dtype}; take another dtype")
    return rounded
