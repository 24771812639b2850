"""End-of-text and padding token of a tokenizer file: configured, declared, or a usual name."""

import json
from pathlib import Path

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers import gguf_vocabulary
from vlc_jax.input_pipeline.tokenizers.tokenizer import read_file

_KNOWN_SPECIAL = {
    "eos_token": ("<|endoftext|>", "</s>", "<eos>", "[SEP]", "<|end_of_text|>", "<end_of_text>"),
    "pad_token": ("<pad>", "[PAD]", "<|pad|>"),
}


def find(kind: str, name: str | None, path: Path, vocabulary: dict[str, int]) -> int:
    """The id of a special token; kind: "eos_token" or "pad_token".

    name: the token of the config; None: the token that a file beside `path` declares, else the
    only usual name in the vocabulary. Raises ValueError if neither exists or several usual names
    do: a wrong end-of-text token would silently change which token the text tower pools.
    """
    if name is None:
        name = declared(kind, path)
    if name is None:
        usual = [token for token in _KNOWN_SPECIAL[kind] if token in vocabulary]
        if len(usual) != 1:
            raise ValueError(
                f"{path} does not say which token is {kind}"
                f"{f' (could be any of {usual})' if usual else ''}; give {kind}='...'"
            )
        name = usual[0]
    if name not in vocabulary:
        raise ValueError(f"{kind} {name!r} is not in the vocabulary of {path}")
    return vocabulary[name]


def declared(kind: str, path: Path) -> str | None:
    """The special token that the files beside `tokenizer.json`, or a GGUF file, declare; None
    without one."""
    if path.suffix == gguf_vocabulary.SUFFIX:
        return gguf_vocabulary.declared(kind, path)
    for sibling in ("tokenizer_config.json", "special_tokens_map.json"):
        file = path.parent / sibling
        if file.exists():
            try:
                data = read_file(file, "declaration of special tokens")
                token = json.loads(text_file.decode(data, file)).get(kind)
            except (ValueError, AttributeError, RecursionError, DataError) as error:
                raise ValueError(f"{file} is not a JSON object: {error}") from error
            if token is not None:
                name = token.get("content") if isinstance(token, dict) else token
                if not isinstance(name, str):
                    raise ValueError(f"{file}: {kind} is no token but a {type(name).__name__}")
                return name
    return None
