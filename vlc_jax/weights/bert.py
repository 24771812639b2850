"""Renaming rules of the encoders of transformers' BertModel, RobertaModel and of BLIP."""

from vlc_jax.weights import rename
from vlc_jax.weights.openai import dense, norm
from vlc_jax.weights.rename import Rule, rule


def rules(theirs: str, ours: str) -> list[Rule]:
    """Rules of an encoder (models/bert.py) with the prefix `theirs`, below the path `ours`."""
    tables, layer, block = (
        f"{theirs}embeddings",
        f"{theirs}encoder.layer.{{i}}",
        f"{ours}/block_{{i}}",
    )
    return [
        *(
            rule(f"{tables}.{name}_embeddings.weight", f"{ours}/{path}_embedding/embedding")
            for name, path in (("word", "token"), ("position", "position"), ("token_type", "type"))
        ),
        *norm(f"{tables}.LayerNorm", f"{ours}/embedding_norm"),
        *_attention(f"{layer}.attention", f"{block}/attention"),
        *_attention(f"{layer}.crossattention", f"{block}/cross"),
        *dense(f"{layer}.intermediate.dense", f"{block}/mlp/up"),
        *dense(f"{layer}.output.dense", f"{block}/mlp/down"),
        *norm(f"{layer}.output.LayerNorm", f"{block}/mlp_norm"),
    ]


def _attention(theirs: str, ours: str) -> list[Rule]:
    """Rules of an attention and of the norm behind it."""
    made = []
    for kind, codec, path in (
        ("weight", rename.SEPARATE_WEIGHT, "kernel"),
        ("bias", rename.SEPARATE_BIAS, "bias"),
    ):
        names = [f"{theirs}.self.{name}.{kind}" for name in ("query", "key", "value")]
        made.append(rule(names, rename.query_key_value(ours, path), codec))
    return [
        *made,
        *dense(f"{theirs}.output.dense", f"{ours}/out"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}_norm"),
    ]
