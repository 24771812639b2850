"""The tokenizers: one protocol, five kinds. Captions in, int32 (texts, length) out.

Every row ends its tokens with EOS, cut captions included, and is filled with `pad_id`. The empty
caption is a row of start token (where there is one), EOS and padding; the loader treats a record
without any text as unusable, so such a row only fills an absent negative or positive.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from input_pipeline.text import clean as cleaning

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
            words = _read(path, "word list").decode("utf-8").split()
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
        self.context_length = _check_length(context_length)
        self.fingerprint = hashlib.sha256("\n".join(words).encode()).hexdigest()
        self.eos_id = len(words) + 2
        self.vocab_size = len(words) + 3
        self._ids = {word: index + 2 for index, word in enumerate(words)}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        ids = self._ids
        rows = [[ids.get(word, self.unk_id) for word in _split(text)] for text in texts]
        return _pack(rows, self.context_length, self.pad_id, self.eos_id)


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
        self.context_length = _check_length(context_length)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        encoded = (cleaning.without_surrogates(text).encode("utf-8") for text in texts)
        rows = [[byte + 1 for byte in text[: self.context_length]] for text in encoded]
        return _pack(rows, self.context_length, self.pad_id, self.eos_id)


class HfTokenizer:
    """A Hugging Face `tokenizer.json`, given by its path or its folder.

    Start and end tokens are added as the file says; EOS is added where the file does not. Which
    tokens end and pad a text is read from `tokenizer_config.json` or `special_tokens_map.json`
    beside it, unless named here. `clean`: SigLIP wants "canonicalize" (see text/clean.py).
    """

    def __init__(
        self,
        context_length: int,
        path: str | Path,
        eos_token: str | None = None,
        pad_token: str | None = None,
        clean: str = "none",
    ) -> None:
        import tokenizers

        if str(path) and Path(path).is_dir():
            path = Path(path) / "tokenizer.json"
        data = _read(path, "Hugging Face tokenizer.json")
        path = Path(path)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path} is not a Hugging Face tokenizer.json: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._clean = _cleaning(clean)
        self.context_length = _check_length(context_length)
        self.fingerprint = hashlib.sha256(data).hexdigest()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1  # ids may have gaps
        self.eos_id = _special_id("eos_token", eos_token, path, vocabulary)
        self.pad_id = _special_id("pad_token", pad_token, path, vocabulary)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        cleaned = [cleaning.without_surrogates(self._clean(text)) for text in texts]
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(cleaned)]
        return _pack(rows, self.context_length, self.pad_id, self.eos_id)


class SentencePieceTokenizer:
    """A SentencePiece model file, as T5 and SigLIP use. EOS is appended, no start token is.

    `pad_id` overrides the model's own padding id: big_vision pads SigLIP texts with 1, which is
    also EOS, although its "c4_en" model has 0 for padding. SigLIP wants clean="canonicalize".
    """

    def __init__(
        self, context_length: int, path: str | Path, pad_id: int | None = None, clean: str = "none"
    ) -> None:
        import sentencepiece

        data = _read(path, "SentencePiece model")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=data)
        except RuntimeError as error:
            raise ValueError(f"{path} is not a SentencePiece model: {error}") from error
        self._clean = _cleaning(clean)
        self.context_length = _check_length(context_length)
        self.fingerprint = hashlib.sha256(data).hexdigest()
        self.vocab_size = self._processor.vocab_size()
        self.eos_id = self._processor.eos_id()
        self.pad_id = self._processor.pad_id() if pad_id is None else pad_id
        if self.eos_id < 0:
            raise ValueError(f"{path} has no end-of-sentence token; train it with one")
        if not 0 <= self.pad_id < self.vocab_size:
            raise ValueError(
                f"{path} has no padding token; choose pad_id in 0..{self.vocab_size - 1} "
                f"(got {self.pad_id})"
            )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        cleaned = [cleaning.without_surrogates(self._clean(text)) for text in texts]
        return _pack(self._processor.encode(cleaned), self.context_length, self.pad_id, self.eos_id)


class ClipTokenizer:
    """CLIP's byte-level BPE from its vocabulary file: 49,408 ids, start 49406, EOS 49407, pad 0.

    `path` is `bpe_simple_vocab_16e6.txt.gz` (openai/CLIP, also inside the open_clip_torch wheel;
    MIT; 1,356,917 bytes, sha256 924691ac...6804a). Ids equal those of the reference tokenizers,
    but for the names of the special tokens written out in a caption, which are ordinary text here.
    """

    vocab_size = 49_408
    sot_id = 49_406
    eos_id = 49_407
    pad_id = 0

    # CLIP's split: contractions, runs of letters, single digits, runs of anything else
    _PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"

    def __init__(self, context_length: int = 77, *, path: str | Path) -> None:
        data = _read(path, "CLIP vocabulary bpe_simple_vocab_16e6.txt.gz")
        self.context_length = _check_length(context_length, special=2)
        self.fingerprint = hashlib.sha256(data).hexdigest()
        merges = _clip_merges(data, path)
        try:
            self._tokenizer = self._build(merges)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path} is not CLIP's list of merges: {error}") from error

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        encodings = self._tokenizer.encode_batch_fast([cleaning.clip(text) for text in texts])
        rows = [[self.sot_id, *encoding.ids] for encoding in encodings]
        return _pack(rows, self.context_length, self.pad_id, self.eos_id)

    def files(self) -> dict[str, str]:
        """The same tokenizer as the files of Hugging Face's CLIPTokenizer, name -> content."""
        start, end = "<|startoftext|>", "<|endoftext|>"
        settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": self.context_length}
        tokens = {"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end}
        vocabulary = self._vocabulary | {start: self.sot_id, end: self.eos_id}
        merges = "".join(f"{first} {second}\n" for first, second in self._merges)
        return {
            "vocab.json": json.dumps(vocabulary),
            "merges.txt": "#version: 0.2\n" + merges,
            "tokenizer_config.json": json.dumps(settings | tokens, indent=2) + "\n",
        }

    def _build(self, merges: list[tuple[str, str]]):
        import tokenizers
        from tokenizers import models, pre_tokenizers

        letters = _byte_letters()
        names = letters + [letter + "</w>" for letter in letters]
        names += [first + second for first, second in merges]
        self._merges, self._vocabulary = merges, {name: i for i, name in enumerate(names)}
        model = models.BPE(
            vocab=self._vocabulary,
            merges=merges,
            end_of_word_suffix="</w>",
        )
        tokenizer = tokenizers.Tokenizer(model)
        split = pre_tokenizers.Split(tokenizers.Regex(self._PATTERN), "removed", invert=True)
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
        return tokenizer


def _split(text: str) -> list[str]:
    words = (word.strip(_STRIPPED) for word in text.lower().split())
    return [word for word in words if word]


def _pack(rows: Iterable[Sequence[int]], length: int, pad: int, eos: int) -> np.ndarray:
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


def _check_length(context_length: int, special: int = 1) -> int:
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


def _read(path: str | Path, what: str) -> bytes:
    if not str(path):
        raise ValueError(f"this tokenizer needs `path`, the {what}")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the {what} {path}: {error.strerror}") from error


def _clip_merges(data: bytes, path: str | Path) -> list[tuple[str, str]]:
    try:
        lines = gzip.decompress(data).decode("utf-8").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not CLIP's gzipped list of merges: {error}") from error
    # A header line, then more merges than CLIP uses: 49,408 ids less 512 bytes and 2 specials.
    merges = [tuple(line.split()) for line in lines[1 : ClipTokenizer.vocab_size - 512 - 2 + 1]]
    if len(merges) != ClipTokenizer.vocab_size - 514 or any(len(merge) != 2 for merge in merges):
        raise ValueError(
            f"{path} is not CLIP's list of merges: a header and at least "
            f"{ClipTokenizer.vocab_size - 514} lines of two tokens are expected"
        )
    return merges  # type: ignore[return-value]


def _byte_letters() -> list[str]:
    """One printable letter per byte, in the order of CLIP's ids (GPT-2's byte alphabet)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = 256 - len(printable)
    return [chr(code) for code in printable] + [chr(256 + extra) for extra in range(others)]


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
