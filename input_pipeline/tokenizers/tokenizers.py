"""The tokenizers: one protocol, five kinds (CLIP's own in clip_bpe.py). Captions in, ids out.

Every row ends its tokens with EOS, cut captions included, and is filled with `pad_id`. The empty
caption is a row of start token (where there is one), EOS and padding; the loader treats a record
without any text as unusable, so such a row only fills an absent negative or positive.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from input_pipeline.tokenizers import clean as cleaning

IN_FOLDER = ("tokenizer.json", "spiece.model", "tokenizer.model")  # of Hugging Face

_STRIPPED = ".,;:!?\"'()[]"  # punctuation around a word


@runtime_checkable
class Tokenizer(Protocol):
    """What models and the loader know of a tokenizer."""

    vocab_size: int
    pad_id: int
    eos_id: int
    context_length: int
    fingerprint: str  # sha256 of the file or the word list that defines the ids

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """int32 (texts, context_length)."""
        ...

    def vocabulary(self) -> dict[str, int]:
        """Token -> id, as far as tokens have names: what tells two tokenizers apart."""
        ...


class WordTokenizer:
    """One id per word of a fixed list: 0 padding, 1 unknown, 2... the words, the last one EOS.

    Words are lower-cased, split at white space, and freed from surrounding punctuation. EOS has
    the largest id, as in CLIP, where the end of a text is also found by argmax. The list is given
    as `words` or as a text file `path` with one word per line; `words_of` makes one from captions.
    """

    pad_id = 0
    unk_id = 1

    def __init__(
        self, context_length: int, words: Sequence[str] = (), path: str | Path | None = None
    ) -> None:
        if bool(words) == (path is not None):
            raise ValueError("a word tokenizer needs either `words` or `path`, a file of words")
        if path is not None:
            words = read(path, "word list").decode("utf-8").split()
        words = list(words)
        if len(set(words)) != len(words):
            twice = next(word for word in words if words.count(word) > 1)
            raise ValueError(f"the word list holds {twice!r} twice")
        unreachable = [word for word in words if _split(word) != [word]]
        if unreachable:
            raise ValueError(
                f"the word list holds {unreachable[0]!r}; words are lower case, without spaces or "
                "surrounding punctuation, or they are never found"
            )
        self.context_length = check_length(context_length)
        self.fingerprint = hashlib.sha256("\n".join(words).encode()).hexdigest()
        self.eos_id = len(words) + 2
        self.vocab_size = len(words) + 3
        self._ids = {word: index + 2 for index, word in enumerate(words)}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        ids = self._ids
        rows = [[ids.get(word, self.unk_id) for word in _split(text)] for text in texts]
        return pack(rows, self.context_length, self.pad_id, self.eos_id)

    def vocabulary(self) -> dict[str, int]:
        """The words."""
        return dict(self._ids)


def words_of(captions: Iterable[str], min_count: int = 1) -> tuple[str, ...]:
    """The words of the captions that occur at least `min_count` times, sorted: a word list."""
    counts: dict[str, int] = {}
    for caption in captions:
        for word in _split(caption):
            counts[word] = counts.get(word, 0) + 1
    return tuple(sorted(word for word, count in counts.items() if count >= min_count))


def scenes_tokenizer(context_length: int, world: str = "scenes-mini") -> WordTokenizer:
    """The words of an embedded world's caption grammar."""
    from input_pipeline.scenes import words
    from input_pipeline.scenes import world as worlds

    return WordTokenizer(context_length, words=words.vocabulary(worlds.named(world)))


def digits_tokenizer(context_length: int) -> WordTokenizer:
    """The words of the captions of the handwritten digits."""
    from input_pipeline.sources import digits

    return WordTokenizer(context_length, words=digits.vocabulary())


class BytesTokenizer:
    """The UTF-8 bytes of a text, for any language and without a vocabulary file.

    0 padding, 1 + byte, and 257 EOS, again the largest id. A cut may fall inside a character.
    """

    pad_id = 0
    eos_id = 257
    vocab_size = 258
    fingerprint = hashlib.sha256(b"utf-8 bytes + 1").hexdigest()

    def __init__(self, context_length: int) -> None:
        self.context_length = check_length(context_length)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        encoded = (cleaning.without_surrogates(text).encode("utf-8") for text in texts)
        rows = [[byte + 1 for byte in text[: self.context_length]] for text in encoded]
        return pack(rows, self.context_length, self.pad_id, self.eos_id)

    def vocabulary(self) -> dict[str, int]:
        """Nothing: bytes have no names."""
        return {}


class HfTokenizer:
    """A Hugging Face `tokenizer.json`, given by its path or its folder.

    Start and end tokens are added as the file says, without `has_start` none; EOS is added where
    the file does not. Which tokens end and pad a text is read from `tokenizer_config.json` or
    `special_tokens_map.json` beside it, unless named here. `clean` is a key of clean.CLEANINGS.
    """

    def __init__(
        self,
        context_length: int,
        path: str | Path,
        eos_token: str | None = None,
        pad_token: str | None = None,
        clean: str = "none",
        has_start: bool = True,
    ) -> None:
        if str(path) and Path(path).is_dir():
            path = Path(path) / "tokenizer.json"
        self._tokenizer, data = open_hf(path)
        self._clean, self._has_start = _cleaning(clean), has_start
        self.context_length = check_length(context_length)
        self.fingerprint = hashlib.sha256(data).hexdigest()
        vocabulary = self.vocabulary()
        self.vocab_size = max(vocabulary.values()) + 1  # ids may have gaps
        self.eos_id = _special_id("eos_token", eos_token, Path(path), vocabulary)
        self.pad_id = _special_id("pad_token", pad_token, Path(path), vocabulary)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        cleaned = [cleaning.without_surrogates(self._clean(text)) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(cleaned, add_special_tokens=self._has_start)
        rows = [encoding.ids for encoding in encodings]
        return pack(rows, self.context_length, self.pad_id, self.eos_id)

    def vocabulary(self) -> dict[str, int]:
        """As in the file, added tokens included."""
        return self._tokenizer.get_vocab(with_added_tokens=True)


class SentencePieceTokenizer:
    """A SentencePiece model file, as T5 and SigLIP use. EOS is appended, no start token is.

    `eos_token` and `pad_token` override the model's own: SigLIP texts are padded with </s>, which
    is also EOS, although its "c4_en" model has <pad>. `clean` is a key of clean.CLEANINGS.
    """

    def __init__(
        self,
        context_length: int,
        path: str | Path,
        eos_token: str | None = None,
        pad_token: str | None = None,
        clean: str = "none",
    ) -> None:
        self._processor, data = open_sentencepiece(path)
        self._clean = _cleaning(clean)
        self.context_length = check_length(context_length)
        self.fingerprint = hashlib.sha256(data).hexdigest()
        self.vocab_size = self._processor.vocab_size()
        self.eos_id = self._special("eos_token", eos_token, self._processor.eos_id(), path)
        self.pad_id = self._special("pad_token", pad_token, self._processor.pad_id(), path)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        cleaned = [cleaning.without_surrogates(self._clean(text)) for text in texts]
        return pack(self._processor.encode(cleaned), self.context_length, self.pad_id, self.eos_id)

    def vocabulary(self) -> dict[str, int]:
        """The pieces."""
        return pieces(self._processor)

    def _special(self, kind: str, name: str | None, own: int, path: str | Path) -> int:
        if name is not None:
            return _special_id(kind, name, Path(path), self.vocabulary())
        if own < 0:
            raise ValueError(f"{path} has no {kind}; give {kind}='...', a piece it has")
        return own


def siglip_tokenizer(
    context_length: int,
    path: str | Path,
    eos_token: str = "</s>",
    pad_token: str = "</s>",
    clean: str = "canonicalize",
) -> HfTokenizer | SentencePieceTokenizer:
    """SigLIP's tokenizer: no start token, and the padding it was trained with, for it is read.

    `path`: a `tokenizer.json`, SentencePiece's `.model`, or a folder with one of them. SigLIP 2
    (Gemma's vocabulary) wants "<eos>", "<pad>" and "lower".
    """
    special = {"eos_token": eos_token, "pad_token": pad_token, "clean": clean}
    if str(path) and Path(path).is_dir():
        found = [Path(path) / name for name in IN_FOLDER if (Path(path) / name).exists()]
        if not found:
            raise ValueError(f"{path} holds no tokenizer; looked for {', '.join(IN_FOLDER)}")
        path = found[0]
    if Path(path).suffix == ".model":
        return SentencePieceTokenizer(context_length, path, **special)
    return HfTokenizer(context_length, path, **special, has_start=False)


def open_hf(path: str | Path):
    """The library's tokenizer, neither cutting nor padding, and the bytes of its file."""
    import tokenizers

    data = read(path, "Hugging Face tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path} is not a Hugging Face tokenizer.json: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer, data


def open_sentencepiece(path: str | Path):
    """The library's processor and the bytes of its file."""
    import sentencepiece

    data = read(path, "SentencePiece model")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=data), data
    except RuntimeError as error:
        raise ValueError(f"{path} is not a SentencePiece model: {error}") from error


def pieces(processor) -> dict[str, int]:
    """Piece -> id of a SentencePiece processor."""
    names = processor.id_to_piece(list(range(processor.vocab_size())))
    return {name: index for index, name in enumerate(names)}


def _split(text: str) -> list[str]:
    words = (word.strip(_STRIPPED) for word in text.lower().split())
    return [word for word in words if word]


def pack(rows: Iterable[Sequence[int]], length: int, pad: int, eos: int) -> np.ndarray:
    """Rows of ids -> int32 (rows, length): EOS after the last token, or in the last place."""
    rows = list(rows)
    packed = np.full((len(rows), length), pad, np.int32)
    for index, row in enumerate(rows):
        if row and row[-1] == eos:
            row = row[:-1]
        count = min(len(row), length - 1)
        packed[index, :count] = row[:count]
        packed[index, count] = eos
    return packed


def check_length(context_length: int, special: int = 1) -> int:
    if context_length <= special:
        raise ValueError(
            f"context_length must leave room for a word beside {special} special token(s); "
            f"got {context_length}"
        )
    return context_length


def _cleaning(name: str):
    if name not in cleaning.CLEANINGS:
        raise ValueError(f"clean must be one of {sorted(cleaning.CLEANINGS)}; got {name!r}")
    return cleaning.CLEANINGS[name]


def read(path: str | Path, what: str) -> bytes:
    if not str(path):
        raise ValueError(f"this tokenizer needs `path`, the {what}")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the {what} {path}: {error.strerror}") from error


_KNOWN_SPECIAL = {
    "eos_token": ("<|endoftext|>", "</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<end_of_text>"),
    "pad_token": ("<pad>", "[PAD]", "<|pad|>"),
}


def _special_id(kind: str, name: str | None, path: Path, vocabulary: dict[str, int]) -> int:
    if name is None:
        name = _declared(kind, path)
    if name is None:
        found = [token for token in _KNOWN_SPECIAL[kind] if token in vocabulary]
        if len(found) != 1:
            raise ValueError(
                f"{path} does not say which token is {kind}"
                f"{f' (could be any of {found})' if found else ''}; give {kind}='...'"
            )
        name = found[0]
    if name not in vocabulary:
        raise ValueError(f"{kind} {name!r} is not in the vocabulary of {path}")
    return vocabulary[name]


def _declared(kind: str, path: Path) -> str | None:
    """The special token as the files beside `tokenizer.json` name it."""
    for sibling in ("tokenizer_config.json", "special_tokens_map.json"):
        file = path.parent / sibling
        if file.exists():
            try:
                token = json.loads(file.read_text("utf-8")).get(kind)
            except (ValueError, AttributeError) as error:
                raise ValueError(f"{file} is not a JSON object: {error}") from error
            if token is not None:
                return token["content"] if isinstance(token, dict) else token
    return None
