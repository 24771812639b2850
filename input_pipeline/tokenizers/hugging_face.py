"""Tokenizers in Hugging Face's format: a tokenizer.json, read by the library `tokenizers`; those in
GGUF files are translated to it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers import gguf_vocabulary, special_tokens, tokenizer, trial

# ids; the largest published vocabularies have about 260,000, and an embedding row each
MAX_VOCABULARY = 10_000_000
# Characters that normalizers may make of one. Published ones replace a space by one character;
# a chain of replacements "a" -> "aaaa" takes all memory for a text of 10 letters.
_MAX_GROWTH = 64
_TEXTS = (
    "A photo of two dogs, \u201cSpot\u201d & Rex\u2019s \u72ac: 3.5 kg!",
    "",
    " a  b\n\tc" * 9,
)


class HfTokenizer(tokenizer.FileTokenizer):
    """A Hugging Face `tokenizer.json`; `path` is the file or its folder, or a GGUF file.

    Start and end tokens are added by the file's post-processor, or not at all without `has_start`;
    EOS is always added. eos_token and pad_token default to the entries of `tokenizer_config.json`
    or `special_tokens_map.json` beside the file. `clean` is a key of clean.CLEANINGS.
    added_tokens: special tokens that the file lacks get the next ids, in this order.
    left_out: a token of the post-processor that texts do not have, such as BERT's "[SEP]".
    """

    def __init__(
        self,
        context_length: int,
        path: str | Path,
        eos_token: str | None = None,
        pad_token: str | None = None,
        clean: str = "none",
        has_start: bool = True,
        added_tokens: Sequence[str] = (),
        left_out: str | None = None,
    ) -> None:
        if str(path) and Path(path).is_dir():
            path = Path(path) / "tokenizer.json"
        self._tokenizer, data = open_hf(path, added_tokens)
        self._path = path
        super().__init__(context_length, data, clean)
        self.fingerprint += f" {list(added_tokens)}" if added_tokens else ""
        self.fingerprint += f" without {left_out}" if left_out else ""
        self._has_start, self._left_out = has_start, None
        vocabulary = self.vocabulary()
        if left_out is not None:
            self._left_out = special_tokens.find("left_out", left_out, Path(path), vocabulary)
        # ids may have gaps
        self.vocab_size = max(vocabulary.values()) + 1
        if self.vocab_size > MAX_VOCABULARY:
            raise ValueError(f"{path}: ids are below {MAX_VOCABULARY:,}; got {self.vocab_size - 1}")
        self.eos_id = special_tokens.find("eos_token", eos_token, Path(path), vocabulary)
        self.pad_id = special_tokens.find("pad_token", pad_token, Path(path), vocabulary)
        # Unigram has unk_id, other models unk_token or neither
        model = json.loads(data)["model"]
        self.unk_id = model.get("unk_id", vocabulary.get(model.get("unk_token")))
        # of the post-processor, whose ids the vocabulary may lack
        if (largest := max(self.rows([""])[0], default=0)) >= self.vocab_size:
            raise ValueError(f"{path}: its special tokens have the id {largest}, and no token has")

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        cleaned = self._cleaned(texts)
        with _data_errors(self._path, texts):
            encodings = self._tokenizer.encode_batch_fast(
                cleaned, add_special_tokens=self._has_start
            )
        return [[i for i in encoding.ids if i != self._left_out] for encoding in encodings]

    def before_image(self, text: str) -> tuple[int, ...]:
        """Ids of a text with special tokens by name, without those of the post-processor."""
        with _data_errors(self._path, [text]):
            return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out."""
        with _data_errors(self._path, ids):
            return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    def vocabulary(self) -> dict[str, int]:
        """Token -> id as in the file, added tokens included."""
        return self._tokenizer.get_vocab(with_added_tokens=True)


def open_hf(path: str | Path, added_tokens: Sequence[str] = ()) -> tuple[Any, bytes]:
    """The library's tokenizer without truncation and padding, with special tokens that its file may
    lack, and the bytes of the file.

    Raises ValueError for a file that the library cannot read or use, see `trial`."""
    import tokenizers

    if Path(path).suffix == gguf_vocabulary.SUFFIX:
        data = gguf_vocabulary.tokenizer_json(path)
    else:
        name = "Hugging Face tokenizer.json"
        data = tokenizer.read_file(path, name, tokenizer.MAX_VOCABULARY_FILE)
    try:
        text = text_file.decode(data, Path(path))
        document = json.loads(text)
        patterns = _texts_of([document.get("normalizer"), document.get("pre_tokenizer")])
        is_growing = _growth(document.get("normalizer")) > _MAX_GROWTH
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DataError) as error:
        raise ValueError(f"{path} is not a Hugging Face tokenizer.json: {error!r}") from error
    if is_growing:
        raise ValueError(
            f"{path}: its normalizers may make more than {_MAX_GROWTH} characters of one, which is "
            "taken for an attack"
        )
    # what the file replaces or splits at, too
    probe = " ".join(patterns)[:5_000]
    if problem := trial.problem("tokenizers", text.encode(), (*_TEXTS, probe)):
        raise ValueError(f"{path} is not a Hugging Face tokenizer.json: {problem}")
    library = tokenizers.Tokenizer.from_str(text)
    library.no_truncation()
    library.no_padding()
    library.add_special_tokens(list(added_tokens))
    return library, data


@contextmanager
def _data_errors(path: str | Path, inputs: Sequence[Any]) -> Iterator[None]:
    """Turns errors of the library at texts or ids into DataErrors, which name the first of them."""
    try:
        yield
    except BaseException as error:
        # a panic of Rust is no Exception, and its class cannot be imported
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(f"{path} fails at {inputs[:1]!r:.80}: {error}") from error
        raise


def _growth(normalizer: Any) -> float:
    """Upper bound of the characters that replacements make of one character.

    Unicode's normal forms and bytes, at most 18, are not counted."""
    if normalizer is None:
        return 1
    if normalizer["type"] == "Sequence":
        growth = 1.0
        for each in normalizer["normalizers"]:
            growth *= _growth(each)
        return growth
    if normalizer["type"] != "Replace":
        return 1
    pattern = normalizer["pattern"]
    # a regular expression may match a single character
    length = max(1, len(pattern["String"])) if "String" in pattern else 1
    return max(1, len(normalizer["content"]) / length)


def _texts_of(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [text for part in parts for text in _texts_of(part)]
    return [value] if isinstance(value, str) else []
