"""Tokenizer files in a folder of pretrained weights, and their vocabulary."""

import json
from pathlib import Path

from vlc_jax.input_pipeline.tokenizers import hugging_face, sentence_piece, tokenizer

VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model", "tokenizer.model")
OTHERS = ("merges.txt", "tokenizer_config.json", "special_tokens_map.json")


def vocabulary(folder: str | Path) -> dict[str, int] | None:
    """Token -> id of the first tokenizer file in a folder; None without one.

    Raises ValueError for a damaged file.
    """
    for path in (Path(folder) / name for name in VOCABULARIES):
        if not path.exists():
            continue
        if path.name == "tokenizer.json":
            return hugging_face.open_hf(path)[0].get_vocab(with_added_tokens=True)
        if path.suffix == ".model":
            return sentence_piece.pieces(sentence_piece.open_sentencepiece(path)[0])
        try:
            data = tokenizer.read_file(path, "vocabulary", tokenizer.MAX_VOCABULARY_FILE)
            ids = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not a JSON object of token ids: {error}") from error
        if not isinstance(ids, dict) or not all(isinstance(x, int) for x in ids.values()):
            raise ValueError(f"{path} is not a JSON object of token ids")
        return ids
    return None


def files(path: str | Path) -> list[Path]:
    """The tokenizer files in a folder, or a tokenizer file and the others beside it."""
    path = Path(path)
    names = (*VOCABULARIES, *OTHERS)
    if not path.is_dir() and path.name not in names:
        return [path]
    folder = path if path.is_dir() else path.parent
    return [folder / name for name in names if (folder / name).exists()]
