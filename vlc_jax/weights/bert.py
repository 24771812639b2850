"""Renaming rules of the encoders of transformers' BertModel, RobertaModel and of BLIP."""

from vlc_jax.weights.openai import dense, norm, separate
from vlc_jax.weights.rename import Rule, rule


def rules(theirs: str, ours: str) -> list[Rule]:
    """Rules of an encoder (models/bert.py) with the prefix `theirs`, below the path `ours`."""
    tables, layer = f"{theirs}embeddings", f"{theirs}encoder.layer.{{i}}"
    block = f"{ours}/block_{{i}}"
    return [
        *(
            rule(f"{tables}.{name}_embeddings.weight", f"{ours}/{path}_embedding/embedding")
            for name, path in (("word", "token"), ("position", "position"), ("token_type", "type"))
        ),
        *norm(f"{tables}.LayerNorm", f"{ours}/embedding_norm"),
        *attention(f"{layer}.attention", f"{block}/attention"),
        *attention(f"{layer}.crossattention", f"{block}/cross"),
        *dense(f"{layer}.intermediate.dense", f"{block}/mlp/up"),
        *dense(f"{layer}.output.dense", f"{block}/mlp/down"),
        *norm(f"{layer}.output.LayerNorm", f"{block}/mlp_norm"),
    ]


def attention(theirs: str, ours: str, inner: str = "self") -> list[Rule]:
    """Rules of an attention and of the norm behind it; inner: their name of its projections."""
    return [
        *separate([f"{theirs}.{inner}.{name}" for name in ("query", "key", "value")], ours),
        *dense(f"{theirs}.output.dense", f"{ours}/out"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}_norm"),
    ]
