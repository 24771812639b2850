"""A Llama of random numbers in a folder of Hugging Face's, whose tokens are bytes."""

import functools
import json
from pathlib import Path

import numpy as np
import tokenizers

from tests.support import llava_folder, small_models
from vlc_jax.models import lm
from vlc_jax.weights import llava

LM = llava_folder.LM | {"vocab": 258}


def write_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """Bytes, as Llama 3 writes them; a text starts with <s>."""
    library = small_models.byte_pairs([], ["<s>", "</s>"], 258)
    small_models.surround(library, "<s> $A")
    library.save(str(folder / "tokenizer.json"))
    return library


def write(folder: Path) -> None:
    """A Llama that writes letters, ends of lines and ends of texts."""
    folder.mkdir(exist_ok=True)
    library = write_tokenizer(folder)
    sizes = {"family": "llama", "lm": LM}
    params = small_models.drawn(functools.partial(lm.init, lm.from_sizes(LM)), seed=3)
    written = [library.token_to_id(token) for token in [*"abcdefghijklmnop", "Ġ", "Ċ", "</s>"]]
    mask = np.isin(np.arange(258), written)
    llava.save({"lm": params | {"head": params["head"] * mask}}, sizes, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 1}))
