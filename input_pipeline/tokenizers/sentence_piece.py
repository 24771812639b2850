"""Tokenizers in SentencePiece's format: a .model file, read by the library `sentencepiece`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.tokenizers import special_tokens, tokenizer, trial


class SentencePieceTokenizer(tokenizer.FileTokenizer):
    """A SentencePiece model file (T5, SigLIP). Appends EOS, adds no start token.

    `eos_token` and `pad_token` override the model's own: SigLIP pads with </s>, which is also EOS,
    although its "c4_en" model has <pad>. A model without one (Llama's has no padding) takes the
    token that `tokenizer_config.json` or `special_tokens_map.json` beside the file declares.
    `clean` is a key of clean.CLEANINGS.
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
        super().__init__(context_length, data, clean)
        self.vocab_size = self._processor.vocab_size()
        self.unk_id = self._processor.unk_id()
        self.eos_id = self._special("eos_token", eos_token, self._processor.eos_id(), path)
        self.pad_id = self._special("pad_token", pad_token, self._processor.pad_id(), path)

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(self._cleaned(texts))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens left out."""
        return self._processor.decode([int(i) for i in ids])

    def vocabulary(self) -> dict[str, int]:
        """Piece -> id."""
        return pieces(self._processor)

    def _special(self, kind: str, name: str | None, default: int, path: str | Path) -> int:
        # SentencePiece's -1: the model has no such token
        if name is None and default < 0:
            name = special_tokens.declared(kind, Path(path))
        if name is not None:
            return special_tokens.find(kind, name, Path(path), self.vocabulary())
        if default < 0:
            raise ValueError(f"{path} has no {kind}; give {kind}='...', a piece it has")
        return default


def open_sentencepiece(path: str | Path) -> tuple[Any, bytes]:
    """The library's processor and the bytes of its file. Raises ValueError, see `trial`."""
    import sentencepiece

    data = tokenizer.read_file(path, "SentencePiece model", tokenizer.MAX_VOCABULARY_FILE)
    if problem := trial.problem("sentencepiece", data, ("A photo, \u72ac \u201ca\u201d!", "")):
        raise ValueError(f"{path} is not a SentencePiece model: {problem}")
    return sentencepiece.SentencePieceProcessor(model_proto=data), data


def pieces(processor: Any) -> dict[str, int]:
    """Piece -> id of a SentencePiece processor."""
    names = processor.id_to_piece(list(range(processor.vocab_size())))
    return {name: index for index, name in enumerate(names)}
