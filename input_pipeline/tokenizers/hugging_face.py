"""Tokenizers in Hugging Face's format: a tokenizer.json, read by the library `tokenizers`."""

import json
from collections.abc import Sequence
from pathlib import Path

from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers import special_tokens, tokenizer


class HfTokenizer(tokenizer.FileTokenizer):
    """A Hugging Face `tokenizer.json`; `path` is the file or its folder.

    Start and end tokens are added by the file's post-processor, or not at all without `has_start`;
    EOS is always added. eos_token and pad_token default to the entries of `tokenizer_config.json`
    or `special_tokens_map.json` beside the file. `clean` is a key of clean.CLEANINGS.
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
        super().__init__(context_length, data, clean)
        self._has_start = has_start
        vocabulary = self.vocabulary()
        # ids may have gaps
        self.vocab_size = max(vocabulary.values()) + 1
        self.eos_id = special_tokens.find("eos_token", eos_token, Path(path), vocabulary)
        self.pad_id = special_tokens.find("pad_token", pad_token, Path(path), vocabulary)
        # Unigram has unk_id, other models unk_token or neither
        model = json.loads(data)["model"]
        self.unk_id = model.get("unk_id", vocabulary.get(model.get("unk_token")))

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        cleaned = self._cleaned(texts)
        encodings = self._tokenizer.encode_batch_fast(cleaned, add_special_tokens=self._has_start)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    def vocabulary(self) -> dict[str, int]:
        """Token -> id as in the file, added tokens included."""
        return self._tokenizer.get_vocab(with_added_tokens=True)


def open_hf(path: str | Path):
    """The library's tokenizer without truncation and padding, and the bytes of its file."""
    import tokenizers

    data = tokenizer.read_file(path, "Hugging Face tokenizer.json")
    try:
        library = tokenizers.Tokenizer.from_str(text_file.decode(data, Path(path)))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path} is not a Hugging Face tokenizer.json: {error}") from error
    library.no_truncation()
    library.no_padding()
    return library, data
