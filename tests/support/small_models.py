"""Models of a few thousand numbers: their sizes, random parameters, and tokenizers of few words."""

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import sentencepiece
import tokenizers
from safetensors.numpy import save_file

from vlc_jax import models, weights
from vlc_jax.setup.init_from import architecture
from vlc_jax.weights import folder

# Fields of models.lm.Decoder and of models.llava.image_tower; the families' fields come on top.
LM = {"vocab": 60, "width": 16, "depth": 3, "heads": 4, "mlp_width": 24, "kv_heads": 2,
      "head_width": None, "epsilon": 1e-5, "theta": 1e4, "scaling": None, "window": None,
      "is_tied": False, "activation": "silu", "unit_offset": False,
      "scales_embeddings": False}  # fmt: skip
GEMMA = {"is_tied": True, "head_width": 6, "activation": "gelu_tanh", "unit_offset": True,
         "scales_embeddings": True}  # fmt: skip
GEMMA3 = GEMMA | {"global_every": 2, "local_theta": 2e4, "qk_norm": True, "post_norms": True,
                  "scale_width": 5, "window": 7,
                  "scaling": {"kind": "linear", "original_length": 0, "factor": 8.0}}  # fmt: skip
IMAGE = {"width": 16, "depth": 3, "heads": 2, "mlp_width": 24, "image_size": 8, "patch_size": 4,
         "activation": "quick_gelu", "epsilon": 1e-5}  # fmt: skip
SIGLIP = IMAGE | {"activation": "gelu_tanh", "epsilon": 1e-6, "pre_norm": False,
                  "patch_bias": True, "pooling": "mean"}  # fmt: skip


def families(small: Mapping[str, int], text: Mapping[str, int], heads: int) -> dict[str, Any]:
    """Family -> options of models.build with towers of these sizes.

    heads: of towers that turn queries and keys.
    """
    image, plain = {**small, "image_size": 12, "patch_size": 4}, {**small, **text}
    projected, short = {**image, "projection": 8}, {**plain, "projection": 8}
    turning = {**projected, "heads": heads}
    made = {
        "clip": ("B/32", projected, short),
        "siglip": ("SigLIP-B/16", image, {**plain, "projection": small["width"]}),
        "eva02": ("EVA02-B/16", turning, short),
        "eva01": ("EVA01-g/14", turning, short),
        "pe": ("PE-Core-B/16", {**turning, "pool_heads": 2}, short),
        "roberta": ("roberta-B/32", projected, short),
        "dinov2": ("DINOv2-B/14", {**image, "registers": 2}, {}),
        "llm2clip": ("B/32", projected, {"connector": "llm2clip", "projection": 8}),
    }
    options = {"llm2clip": {"vector_width": 6}}
    return {
        name: {"variant": variant, "image": image, "text": text, **options.get(name, {})}
        for name, (variant, image, text) in made.items()
    }


# What the config files of an exported CLIP say.
FOLDER = folder.Model(
    image=folder.Tower(32, 3, 4, 48, "quick_gelu", 1e-5),
    text=folder.Tower(32, 2, 4, 48, "quick_gelu", 1e-5),
    embed=16,
    image_size=24,
    patch_size=8,
    context_length=12,
    vocab_size=60,
    bos_id=58,
    eos_id=59,
    pad_id=1,
    mean=(0.5, 0.25, 0.125),
    std=(1.0, 0.5, 0.25),
    crop="centre",
    is_siglip=False,
)


def normal(shapes: Any, scale: float = 1.0, seed: int = 0, dtype: Any = np.float32) -> Any:
    """A tree of normally distributed numbers with these shapes."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(dtype), shapes)


def drawn(init: Callable[..., Any], *arguments: Any, scale: float = 1.0, seed: int = 0) -> Any:
    """Normally distributed numbers of the shapes of `init(key, *arguments)`, which is not run."""
    return normal(jax.eval_shape(init, jax.random.key(0), *arguments), scale, seed)


def parameters(model: Any, scale: float = 1.0, seed: int = 0) -> Any:
    """Normally distributed numbers in place of a model's first parameters."""
    return drawn(functools.partial(models.init, model), scale=scale, seed=seed)


def write_hugging_face(path: Path, model: Any, name: str, scale: float, **fields: Any) -> Any:
    """model.safetensors and config.json of random parameters, which are returned.

    name: a key of weights.FORMATS.   fields: of both towers in config.json.
    """
    path.mkdir(parents=True, exist_ok=True)
    params = parameters(model, scale)
    save_file(weights.save(params, name, architecture(model)), path / "model.safetensors")
    kind = "siglip" if "siglip" in name else "clip"
    sections = {
        f"{name}_config": {"num_attention_heads": tower.heads, **fields}
        for name, tower in (("vision", model.image), ("text", model.text))
    }
    config = {"model_type": kind, **sections}
    (path / "config.json").write_text(json.dumps(config))
    return params


def write_tokenizer(
    path: Path,
    words: Sequence[str],
    unknown: str,
    split: str = "",
    special: Sequence[str] = (),
    single: str = "",
) -> None:
    """tokenizer.json of whole words; split: regular expression of a word, "" for white space.
    single: words around a text, such as "<s> $A"."""
    table = {word: index for index, word in enumerate(words)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(table, unk_token=unknown))
    rules = tokenizers.pre_tokenizers
    library.pre_tokenizer = (
        rules.Split(tokenizers.Regex(split), "removed", invert=True)
        if split
        else rules.Whitespace()
    )
    library.add_special_tokens([tokenizers.AddedToken(word, special=True) for word in special])
    surround(library, single)
    library.save(str(path / "tokenizer.json"))


def surround(library: tokenizers.Tokenizer, single: str) -> None:
    """Puts words of its vocabulary around each text, such as "<s> $A"."""
    if single:
        around = [(word, library.token_to_id(word)) for word in single.split() if word != "$A"]
        made = tokenizers.processors.TemplateProcessing(single=single, special_tokens=around)
        library.post_processor = made


def byte_pairs(
    texts: Sequence[str], special: Sequence[str], size: int, before: Sequence[Any] = ()
) -> tokenizers.Tokenizer:
    """Byte-level BPE, as Llama 3 has it.   before: rules that split a text first."""
    library, rules = tokenizers.Tokenizer(tokenizers.models.BPE()), tokenizers.pre_tokenizers
    library.pre_tokenizer = rules.Sequence([*before, rules.ByteLevel(add_prefix_space=False)])
    library.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=rules.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return library


def write_pieces(path: Path, texts: Sequence[str]) -> None:
    """A SentencePiece model as Llama's: byte fallback, <unk>, <s>, </s>, and no padding."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=330,
        model_type="bpe",
        byte_fallback=True,
        user_defined_symbols=["\n"],
        hard_vocab_limit=False,
        normalization_rule_name="identity",  # both as Llama's model has them
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
