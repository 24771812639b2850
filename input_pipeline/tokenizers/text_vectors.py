"""Precomputed text vectors of any sentence encoder, read from a file in place of a tokenizer.

X.npy (float32 or float16) or X.safetensors (a tensor "vectors"; bfloat16, too) holds the matrix
(texts, width), X.jsonl beside it the texts of the rows, a JSON string per line. The command
`vlc-jax embed_text` writes them and X.encoder.json, the options of the encoder.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

SUFFIXES = (".npy", ".safetensors")
TENSOR = "vectors"  # its name in a safetensors file
DTYPES = {  # numpy's name -> safetensors' name
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
}
# bytes checked at a time
_BLOCK = 2**24


class Layout(NamedTuple):
    """Offset in bytes, shape and dtype of the row-major matrix in a file."""

    start: int
    texts: int
    width: int
    dtype: str

    @property
    def row_bytes(self) -> int:
        return self.width * number(self.dtype).itemsize


class TextVectors(Tokenizer):
    """Texts -> precomputed vectors, looked up by the exact text; a Tokenizer with `width`.

    The empty text, which only fills an absent negative or positive, is a row of zeros. Pickles to
    worker processes, which open the file themselves and have no `encode_others`.

    encode_others: encodes texts that the file lacks to (texts, width); None: they raise. `require`
      caches its vectors.

    Raises ValueError for a missing file or another format; DataError if the numbers of texts and
    vectors differ, a text has two vectors, or a value is not finite.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self.layout = read_layout(self.path)
        self.width = self.layout.width
        texts = read_texts(self.path.with_suffix(".jsonl"))
        if len(texts) != self.layout.texts:
            raise DataError(
                f"{self.path} holds {self.layout.texts:,} vectors, {self.path.stem}.jsonl beside "
                f"it {len(texts):,} texts: write both again"
            )
        self._open()
        self.fingerprint = self._check(texts)
        self._rows = self._index(texts)
        self.encode_others: Callable[[Sequence[str]], np.ndarray] | None = None
        self._others: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (texts, width). Raises DataError for a text that has no vector."""
        others = self._others | self._encoded([text for text in texts if text not in self._others])
        vectors = np.zeros((len(texts), self.width), np.float32)
        for index, text in enumerate(texts):
            if text in others:
                vectors[index] = others[text]
            elif text:
                vectors[index] = self._vectors[self._row(text)]
        return vectors

    def require(self, texts: Sequence[str], *, forget: bool = False) -> None:
        """Encodes and caches texts that the file lacks; raises DataError for one without a vector.

        Call it before a thread reads the texts: an encoder must not compute beside the model on the
        same devices. forget: drop the vectors that earlier calls cached. Errors of `encode_others`
        pass through.
        """
        known = {} if forget else self._others
        self._others = known | self._encoded([text for text in texts if text not in known])
        for text in texts:
            if text and text not in self._others:
                self._row(text)

    def _encoded(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Vectors of the texts that the file lacks."""
        lacking = dict.fromkeys(text for text in texts if text and text not in self._rows)
        if not lacking or self.encode_others is None:
            return {}
        return dict(zip(lacking, self.encode_others([*lacking]), strict=True))

    @property
    def first(self) -> tuple[str, np.ndarray]:
        """The first text and its vector, to verify that an encoder is the same."""
        text = next(text for text in self._rows if text)
        return text, self([text])[0]

    def _row(self, text: str) -> int:
        if text not in self._rows:
            raise DataError(
                f"no vector of {text!r} in {self.path}: vlc-jax embed_text "
                "--config ... computes the vectors of all texts that a config reads; hard texts "
                "generated during training have none, prepare them with the data"
            )
        return self._rows[text]

    def _open(self) -> None:
        _, texts, width, dtype = self.layout
        # memory maps know no bfloat16
        bits = np.dtype(f"<u{number(dtype).itemsize}")
        file = np.memmap(self.path, bits, "r", self.layout.start, (texts, width))
        self._vectors = file.view(number(dtype))

    def _check(self, texts: Sequence[str]) -> str:
        """The sha256 of texts and vectors; the whole file is read for it, once."""
        digest = hashlib.sha256(json.dumps([self.width, self.layout.dtype, texts]).encode())
        step = max(1, _BLOCK // self.layout.row_bytes)
        for first in range(0, len(texts), step):
            block = self._vectors[first : first + step]
            is_finite = np.isfinite(block.astype(np.float32)).all(axis=1)
            if not is_finite.all():
                text = texts[first + int(np.argmin(is_finite))]
                raise DataError(f"{self.path}: the vector of {text!r} is not finite")
            digest.update(np.ascontiguousarray(block).view(np.uint8))
        return digest.hexdigest()

    def _index(self, texts: Sequence[str]) -> dict[str, int]:
        rows: dict[str, int] = {}
        for row, text in enumerate(texts):
            first = rows.setdefault(text, row)
            if first != row and (self._vectors[first] != self._vectors[row]).any():
                raise DataError(
                    f"{self.path}: {text!r} has two vectors, rows {first} and {row}; keep one"
                )
        return rows

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_vectors", "encode_others", "_others")
        return {key: value for key, value in self.__dict__.items() if key not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.encode_others, self._others = None, {}
        self._open()


def encoder_file(path: Path) -> Path:
    """The file beside vectors with the options of their encoder."""
    return path.with_suffix(".encoder.json")


def read_encoder(path: Path) -> Mapping[str, Any] | None:
    """The options of the encoder of the vectors at `path`; None without a file beside them.

    Raises DataError for a damaged file.
    """
    file = encoder_file(path)
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} is damaged: {error}; remove it") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} is no JSON object of encoder options; remove it")
    return content


def text_vectors(context_length: int, path: str | Path) -> TextVectors:
    """`TextVectors` as an entry of TOKENIZERS; context_length has no meaning for vectors."""
    del context_length
    return TextVectors(path)


def number(dtype: str) -> np.dtype:
    """The numpy dtype of a name in DTYPES; bfloat16 comes from ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def checked_path(path: str | Path) -> Path:
    """The path. Raises ValueError unless its suffix is one of SUFFIXES."""
    if Path(path).suffix not in SUFFIXES or not str(path):
        raise ValueError(f"text vectors are in a file {' or '.join(SUFFIXES)}; got {str(path)!r}")
    return Path(path)


def read_layout(path: Path) -> Layout:
    """The layout of a file of vectors. Raises ValueError for a missing or another file."""
    try:
        with path.open("rb") as file:
            read = _npy_layout if path.suffix == ".npy" else _safetensors_layout
            layout = read(file)
            available = file.seek(0, 2) - layout.start
    except OSError as error:
        raise ValueError(f"cannot read the text vectors {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} holds no text vectors, (texts, width) of {', '.join(DTYPES)}: {error}"
        ) from error
    needed = layout.texts * layout.row_bytes
    if not needed or available < needed:
        raise ValueError(
            f"{path} is {'cut' if needed else 'empty'}: ({layout.texts}, {layout.width}) of "
            f"{layout.dtype} are {needed:,} bytes, it has {available:,}"
        )
    return layout


def _npy_layout(file: BinaryIO) -> Layout:
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"version {version} of the format, which np.save does not write for it")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.name not in DTYPES or not dtype.isnative or is_fortran:
        raise ValueError(f"got {dtype} in {'columns' if is_fortran else 'rows'}")
    texts, width = shape
    return Layout(file.tell(), texts, width, dtype.name)


def _safetensors_layout(file: BinaryIO) -> Layout:
    size = int.from_bytes(file.read(8), "little")
    if size > 2**24:
        raise ValueError("it is no safetensors file")
    tensor = json.loads(file.read(size))[TENSOR]
    names = {name: dtype for dtype, name in DTYPES.items()}
    texts, width = tensor["shape"]
    return Layout(8 + size + tensor["data_offsets"][0], texts, width, names[tensor["dtype"]])


def header(path: Path, texts: int, width: int, dtype: str) -> bytes:
    """The bytes before the rows, by the suffix of `path`. Raises ValueError for bfloat16 in .npy,
    which lacks that dtype.
    """
    if path.suffix == ".npy":
        if dtype == "bfloat16":
            raise ValueError(".npy holds no bfloat16; use float16 or a .safetensors file")
        file = io.BytesIO()
        described = {"descr": f"<f{number(dtype).itemsize}", "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**described, "shape": (texts, width)})
        return file.getvalue()
    end = texts * width * number(dtype).itemsize
    tensor = {"dtype": DTYPES[dtype], "shape": [texts, width], "data_offsets": [0, end]}
    content = json.dumps({TENSOR: tensor}).encode()
    content += b" " * (-len(content) % 8)
    return len(content).to_bytes(8, "little") + content


def read_texts(path: Path) -> list[str]:
    """The texts of a file: .jsonl, a JSON string per line; else a text per line. Skips blank lines.

    Raises ValueError for a missing file, DataError for malformed content.
    """
    try:
        lines = text_file.lines(path)
    except OSError as error:
        raise ValueError(f"cannot read the texts {path}: {error.strerror}") from error
    if path.suffix != ".jsonl":
        return [line for line in lines if line.strip()]
    return list(_json_texts(path, lines))


def _json_texts(path: Path, lines: Sequence[str]) -> Iterator[str]:
    for line_number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {line_number} is no JSON: {error}") from error
        if not isinstance(text, str):
            raise DataError(f"{path} line {line_number} is a {type(text).__name__}, not a text")
        yield text
