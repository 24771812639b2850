"""Tokenizer of a language model: ids of any length, with or without specials, and back."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.tokenizers import gguf_vocabulary, hugging_face, sentence_piece

# decoded from an incomplete character
_UNREADABLE = "\ufffd"
# In this order: vocabularies with one of the first two may also hold "<s>", an HTML tag.
_START_TOKENS = ("<bos>", "<|begin_of_text|>", "<s>")


class DecoderTokenizer:
    """Tokenizer of a language model: a `tokenizer.json`, `tokenizer.model` or their folder, or a
    GGUF file.

    Special tokens written out in a text ("</s>") become special tokens, as in Hugging Face. With
    `has_start`, a `tokenizer.json` adds the specials of its post-processor, possibly none, and a
    SentencePiece model its BOS. A SentencePiece model encodes each piece of text between specials
    separately, with its own leading space (the "legacy" rule of Llama's tokenizer).

    added_tokens: as in HfTokenizer; not for a SentencePiece model.
    Raises ValueError for a missing or damaged file.
    """

    def __init__(self, path: str | Path, added_tokens: Sequence[str] = ()) -> None:
        path = _file(Path(path))
        if added_tokens and path.suffix == ".model":
            raise ValueError(f"tokens are added to a tokenizer.json only; got {path}")
        self.path = path
        self._library = self._processor = None
        if path.suffix in (".json", gguf_vocabulary.SUFFIX):
            self._library, _ = hugging_face.open_hf(path, added_tokens)
            self._ids = self._library.get_vocab(with_added_tokens=True)
            return
        self._processor, _ = sentence_piece.open_sentencepiece(path)
        self._ids = sentence_piece.pieces(self._processor)
        self._control = {name: i for name, i in self._ids.items() if self._processor.is_control(i)}
        names = sorted(map(re.escape, self._control), key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(names)})" if names else "(?!)()")

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._ids.values()) + 1

    @property
    def start_token(self) -> str | None:
        """The name of the start token; None if the vocabulary has none."""
        return next((name for name in _START_TOKENS if name in self._ids), None)

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def id_of(self, token: str) -> int:
        """The id of a token by its name. Raises ValueError for an unknown name."""
        if token not in self._ids:
            raise ValueError(f"{self.path} has no token {token!r}")
        return self._ids[token]

    def encode(self, text: str, has_start: bool = False) -> list[int]:
        """The ids of a text."""
        if self._library is not None:
            return self._library.encode(text, add_special_tokens=has_start).ids
        ids = [self._processor.bos_id()] if has_start and self._processor.bos_id() >= 0 else []
        for part in self._split.split(text):
            if part in self._control:
                ids.append(self._control[part])
            elif part:
                ids += self._processor.encode(part)
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of ids, special tokens left out unless `special`."""
        ids = [int(i) for i in ids]
        if self._library is not None:
            return self._library.decode(ids, skip_special_tokens=not special)
        # SentencePiece decodes control tokens to nothing
        return self._processor.decode(ids)


class TextStream:
    """Incremental decoder: a character of several tokens appears with its last token.

    tokenizer: has `decode(ids)`.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._ids, self._length = tokenizer, [], 0

    def __call__(self, token_id: int) -> str:
        """The text that this id adds; "" while a character is incomplete."""
        self._ids.append(int(token_id))
        # All ids at once: the text of one id depends on its neighbours (leading spaces, bytes).
        text = self._tokenizer.decode(self._ids)
        if text.endswith(_UNREADABLE):
            return ""
        added, self._length = text[self._length :], len(text)
        return added


def common_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Length of the common prefix of two rows of ids."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(first), len(second)))


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in ("tokenizer.json", "tokenizer.model"):
        if (path / name).exists():
            return path / name
    raise ValueError(f"{path} holds neither tokenizer.json nor tokenizer.model")
