"""CLIP's byte-level BPE, read from any published form of its vocabulary."""

import gzip
import hashlib
import importlib.util
import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers import clean as cleaning
from vlc_jax.input_pipeline.tokenizers.tokenizer import (
    MAX_VOCABULARY_FILE,
    Tokenizer,
    check_length,
    read_file,
)

# openai/CLIP, also in the wheel of open_clip_torch; MIT
GZIPPED = "bpe_simple_vocab_16e6.txt.gz"
IN_FOLDER = ("tokenizer.json", "merges.txt", GZIPPED)
GIVE = f"give `path` (of finetune: tokenizer=FILE): {', '.join(IN_FOLDER)}, or their folder"
# ship GZIPPED; located, never imported: both import torch
PACKAGES = ("open_clip", "clip")
START, END = "<|startoftext|>", "<|endoftext|>"
# of OpenAI's merges, one "first second" per line (the gzipped file's own: 924691ac...6804a)
SHA256 = "d308b7377a8ceaa9707a21614fe8c831b9196e197b7aeb69833359362907af02"

_LETTERS = 2 * 256  # ids of the bytes, inside and at the end of a word
_MERGES = 49_408 - _LETTERS - 2


class ClipTokenizer(Tokenizer):
    """CLIP's byte-level BPE: 49,408 ids, start 49406, EOS 49407, pad 0.

    path: `bpe_simple_vocab_16e6.txt.gz`, a `tokenizer.json`, `merges.txt` beside its
      `vocab.json`, or a folder with one of them; "": the first of an installed open_clip or clip.
    sha256: expected hash of the merges (`fingerprint`), the same for every form of the file; by
      default OpenAI's.

    Ids equal the reference tokenizers', except that special tokens written out in a caption are
    ordinary text here: "<|startoftext|>" and "<|endoftext|>", special in OpenAI's code and
    transformers, and "<start_of_text>" and "<end_of_text>", special in open_clip. A caption must
    not move the end of text, whose features are pooled.
    """

    vocab_size = 49_408
    sot_id = 49_406
    eos_id = 49_407
    pad_id = 0

    # CLIP's split: contractions, runs of letters, single digits, runs of anything else. The
    # original also splits off special tokens written in a caption.
    _PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"

    def __init__(
        self, context_length: int = 77, path: str | Path = "", sha256: str = SHA256
    ) -> None:
        path = _find(path)
        merges, ids = _read(path)
        self.context_length = check_length(context_length, special=2)
        self.fingerprint = sha256_of(merges)
        if self.fingerprint != sha256:
            whose = "OpenAI's" if sha256 == SHA256 else "the expected"
            raise ValueError(
                f"{path} is not {whose} CLIP vocabulary: its merges have sha256 "
                f"{self.fingerprint}, not {sha256}; give that file, or, if the weights were "
                f"trained with this one, sha256='{self.fingerprint}'"
            )
        names = _names(merges)
        self._merges, self._vocabulary = merges, {name: i for i, name in enumerate(names)}
        if ids is not None and any(ids.get(name) != i for name, i in self.vocabulary().items()):
            raise ValueError(f"{path} numbers its tokens otherwise than CLIP; use tokenizer 'hf'")
        try:
            self._tokenizer = self._build()
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path} is not CLIP's list of merges: {error}") from error

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast([cleaning.clip(text) for text in texts])
        return [[self.sot_id, *encoding.ids] for encoding in encodings]

    def vocabulary(self) -> dict[str, int]:
        """Token -> id; bytes are written in GPT-2's alphabet."""
        return self._vocabulary | {START: self.sot_id, END: self.eos_id}

    def files(self) -> dict[str, str]:
        """Files of the equivalent Hugging Face CLIPTokenizer: name -> content."""
        settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": self.context_length}
        tokens = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
        return {
            "vocab.json": json.dumps(self.vocabulary()),
            "merges.txt": "#version: 0.2\n" + _lines(self._merges),
            "tokenizer_config.json": json.dumps(settings | tokens, indent=2) + "\n",
        }

    def _build(self) -> Any:
        import tokenizers
        from tokenizers import models, pre_tokenizers

        model = models.BPE(vocab=self._vocabulary, merges=self._merges, end_of_word_suffix="</w>")
        tokenizer = tokenizers.Tokenizer(model)
        split = pre_tokenizers.Split(tokenizers.Regex(self._PATTERN), "removed", invert=True)
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
        return tokenizer


Merges = list[tuple[str, str]]


def sha256_of(merges: Merges) -> str:
    """Hash of the merges, the same for every form of the vocabulary file."""
    return hashlib.sha256(_lines(merges).encode()).hexdigest()


def _lines(merges: Merges) -> str:
    return "".join(f"{first} {second}\n" for first, second in merges)


def _find(path: str | Path) -> Path:
    """The vocabulary file at `path`; for "" the file of an installed package."""
    if not str(path):
        files = [file for folder in _installed() if (file := folder / GZIPPED).exists()]
        if not files:
            raise ValueError(
                "no CLIP vocabulary is installed (looked into the packages "
                f"{', '.join(PACKAGES)}): {GIVE}"
            )
        return files[0]
    path = Path(path)
    if path.is_dir():
        files = [path / name for name in IN_FOLDER if (path / name).exists()]
        if not files:
            raise ValueError(f"{path} holds no CLIP vocabulary: {GIVE}")
        return files[0]
    return path.with_name("merges.txt") if path.name == "vocab.json" else path


def _installed() -> list[Path]:
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    return [Path(p) for spec in specs if spec for p in spec.submodule_search_locations or ()]


def _read(path: Path) -> tuple[Merges, dict[str, int] | None]:
    """The merges of a file, and the token ids if the file lists them."""
    data = read_file(
        path, f"CLIP vocabulary ({GZIPPED}, tokenizer.json or merges.txt)", MAX_VOCABULARY_FILE
    )
    numbers = b"null"
    if path.suffix == ".txt":
        numbers = read_file(
            path.with_name("vocab.json"), "file that belongs to merges.txt,", MAX_VOCABULARY_FILE
        )
    try:
        if path.suffix == ".json":
            model = json.loads(data)["model"]
            if (kind := model.get("type", "BPE")) != "BPE":
                raise ValueError(
                    f"its model is {kind}, of another family of weights: name it (family=...)"
                )
            merges, ids = model["merges"], model["vocab"]
        elif path.suffix == ".txt":
            lines = text_file.decode(data, path).split("\n")
            merges, ids = lines[lines[0].startswith("#version") :], json.loads(numbers)
        else:
            # The first line is a header. CLIP uses only the first 48,894 merges (merges[1:49152 -
            # 256 - 2 + 1] in its simple_tokenizer.py); the slice below cuts every form alike.
            merges, ids = _unpacked(data).decode("utf-8").split("\n")[1:], None
        pairs = [tuple(m.split() if isinstance(m, str) else m) for m in merges[:_MERGES]]
        ids = None if ids is None else dict(ids)
    except (
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        DataError,
    ) as error:
        raise ValueError(f"{path} is not CLIP's list of merges: {error!r}") from error
    if len(pairs) != _MERGES or any(len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"{path} is not CLIP's list of merges: {_MERGES} lines of two tokens are expected"
        )
    return pairs, ids  # type: ignore[return-value]


def _unpacked(data: bytes) -> bytes:
    """The text of a gzipped vocabulary. Raises ValueError for more than any vocabulary has."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        text = file.read(MAX_VOCABULARY_FILE + 1)
    if len(text) > MAX_VOCABULARY_FILE:
        raise ValueError(f"it unpacks to more than {MAX_VOCABULARY_FILE:,} bytes")
    return text


def _names(merges: Merges) -> list[str]:
    """The tokens in the order of their ids: bytes, word-final bytes, merges."""
    letters = byte_letters()
    names = letters + [letter + "</w>" for letter in letters]
    return names + [first + second for first, second in merges]


def byte_letters() -> list[str]:
    """One printable letter per byte, in the order of CLIP's ids (GPT-2's byte alphabet)."""
    return list(letters_of_bytes().values())


def letters_of_bytes() -> dict[int, str]:
    """Byte -> its letter in GPT-2's byte alphabet, in the order of CLIP's ids."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    extra = {byte: chr(256 + index) for index, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printable} | extra
