"""Renaming rules of InstructBLIP in Hugging Face's folders."""

from vlc_jax.weights import bert, rename
from vlc_jax.weights.openai import dense, norm, packed
from vlc_jax.weights.rename import Rule, rule


def rules() -> list[Rule]:
    """Rules of the image tower, the Q-Former and the projector, by the names of transformers."""
    image, text = "vision_model.embeddings", "qformer.embeddings"
    return [
        rule(f"{image}.class_embedding", "image/class_embedding", rename.LEADING_ONES),
        rule(f"{image}.position_embedding", "image/position_embedding", rename.LEADING_ONE),
        rule(f"{image}.patch_embedding.weight", "image/patch_embedding/kernel", rename.PATCHES),
        rule(f"{image}.patch_embedding.bias", "image/patch_embedding/bias"),
        *_image_block("vision_model.encoder.layers.{i}", "image/block_{i}"),
        *norm("vision_model.post_layernorm", "image/norm"),
        rule("query_tokens", "reader/query", rename.LEADING_ONE),
        rule(f"{text}.word_embeddings.weight", "reader/token_embedding/embedding"),
        rule(f"{text}.position_embeddings.weight", "reader/position_embedding/embedding"),
        *norm(f"{text}.layernorm", "reader/embedding_norm"),
        *_reader_block("qformer.encoder.layer.{i}", "reader/block_{i}"),
        *dense("language_projection", "projector/linear"),
    ]


def _image_block(theirs: str, ours: str) -> list[Rule]:
    return [
        *norm(f"{theirs}.layer_norm1", f"{ours}/attention_norm"),
        *packed(f"{theirs}.self_attn.qkv.", f"{ours}/attention"),
        *dense(f"{theirs}.self_attn.projection", f"{ours}/attention/out"),
        *norm(f"{theirs}.layer_norm2", f"{ours}/mlp_norm"),
        *dense(f"{theirs}.mlp.fc1", f"{ours}/mlp/up"),
        *dense(f"{theirs}.mlp.fc2", f"{ours}/mlp/down"),
    ]


def _reader_block(theirs: str, ours: str) -> list[Rule]:
    block = [
        *bert.attention(f"{theirs}.attention", f"{ours}/attention", "attention"),
        *bert.attention(f"{theirs}.crossattention", f"{ours}/cross", "attention"),
    ]
    for end, mlp, mlp_norm in (("", "mlp", "mlp_norm"), ("_query", "query_mlp", "query_norm")):
        block += dense(f"{theirs}.intermediate{end}.dense", f"{ours}/{mlp}/up")
        block += dense(f"{theirs}.output{end}.dense", f"{ours}/{mlp}/down")
        block += norm(f"{theirs}.output{end}.LayerNorm", f"{ours}/{mlp_norm}")
    return block
