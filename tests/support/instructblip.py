"""An InstructBLIP of a few thousand random numbers, as a folder of Hugging Face's."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tokenizers
from flax import linen as nn

from tests.support import llava_folder, small_models
from vlc_jax import models
from vlc_jax.models import llava
from vlc_jax.setup import llava_config
from vlc_jax.weights import llava as weights

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "does", "this", "figure", "show", "is",
        "the", "on", "or", "under", "a", "circle")  # fmt: skip
QFORMER = {"queries": 3, "vocab_size": len(BERT), "positions": 64, "width": 16, "depth": 2,
           "heads": 2, "mlp_width": 24, "cross_every": 2, "activation": "gelu",
           "epsilon": 1e-12}  # fmt: skip
IMAGE = small_models.IMAGE | {"depth": 2, "activation": "gelu", "epsilon": 1e-6, "pre_norm": False,
                              "patch_bias": True, "pooling": "cls"}  # fmt: skip
# The fields that the config.json of InstructBLIP-Vicuna-7B must have.
PUBLISHED = {
    "model_type": "instructblip",
    "text_config": {"model_type": "llama", "vocab_size": 32_001},
    "vision_config": {},
    "qformer_config": {"vocab_size": 30_523},
    "num_query_tokens": 32,
}
SIZES = {
    "family": "llama",
    "lm": llava_folder.LM,
    "kind": "instructblip",
    "image": IMAGE,
    "layer": -1,
    "image_id": 1,
    "select": "cls_patch",
    "qformer": QFORMER,
}


def build(sizes: dict[str, Any], length: int = 128, **head: Any) -> Any:
    """The model of `weights.llava.read_sizes`; length: columns of a row of ids."""
    fields = {key: sizes[key] for key in ("qformer", "select")}
    return models.build(
        "instructblip",
        "L/14",
        head={"decoder": sizes["lm"], **fields, **llava.KINDS["instructblip"], **head},
        text_tower=False,
        vocab_size=sizes["lm"]["vocab"],
        context_length=length,
        image={**sizes["image"], "projection": None},
    )


def shapes(sizes: dict[str, Any]) -> dict[str, Any]:
    """Shapes of the parameters as in the files, {image, reader, projector, lm}."""
    model, side = build(sizes), sizes["image"]["image_size"]

    def parts(model: Any, pixels: jax.Array) -> None:  # less to trace than models.init
        model.head.parameters_for(model.encode_image(pixels).tokens)

    found = jax.eval_shape(nn.init(parts, model), jax.random.key(0), jnp.zeros((1, side, side, 3)))
    return {"image": found["params"]["image"], **found["params"]["head"]}


def write(folder: Path, scale: float = 0.3) -> Any:
    """Writes the folder; returns the parameters."""
    params = small_models.normal(shapes(SIZES), scale)
    weights.save(params, SIZES, folder)
    small_models.write_tokenizer(folder, llava_folder.WORDS, "<pad>", r"\n|[^\s]+")
    (folder / "tokenizer_config.json").write_text('{"bos_token": "</s>"}')
    write_bert(folder / llava_config.INSTRUCTION)
    return params


def write_bert(folder: Path) -> None:
    """tokenizer.json of BERT's kind, with the words of BERT; punctuation is left out."""
    rules, table = tokenizers.pre_tokenizers, {word: i for i, word in enumerate(BERT)}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(table, unk_token="[UNK]"))
    library.normalizer = tokenizers.normalizers.Lowercase()
    split = [rules.WhitespaceSplit(), rules.Punctuation(behavior="removed")]
    library.pre_tokenizer = rules.Sequence(split)
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
