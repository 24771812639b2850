"""Renaming rules of open_clip's SigLIP, PE-Core and EVA-CLIP (timm's image towers, its own text
tower) and of its CLIP with a RoBERTa.

Its CLIP models have OpenAI's names (`openai.rules`).
"""

from vlc_jax.weights import bert, openai, rename
from vlc_jax.weights.openai import dense, norm
from vlc_jax.weights.rename import Rule, rule


def siglip_rules() -> list[Rule]:
    """Rules of SigLIP, and of SigLIP 2 of fixed resolution."""
    return [
        *_attention_pooled(),
        *openai.text_tower("text."),
        *dense("text.text_projection", "text/projection"),
        rule("logit_scale", "logit_scale", rename.SCALAR),
        rule("logit_bias", "logit_bias", rename.SCALAR),
    ]


def pe_rules() -> list[Rule]:
    """Rules of PE-Core; its rotary table is a buffer, not in the file."""
    return [*_attention_pooled(), *_projected()]


def _attention_pooled() -> list[Rule]:
    """Rules of timm's image towers with attention pooling."""
    block, pool = "visual.trunk.blocks.{i}", "visual.trunk.attn_pool"
    ours, pooling = "image/block_{i}", "image/pooling"
    return [
        *_image_tower(),
        *openai.packed(f"{block}.attn.qkv.", f"{ours}/attention"),
        *dense(f"{block}.mlp.fc1", f"{ours}/mlp/up"),
        rule(f"{pool}.latent", f"{pooling}/probe", rename.LEADING_ONE),
        *dense(f"{pool}.q", f"{pooling}/attention/query"),
        *dense(f"{pool}.kv", f"{pooling}/attention/key_value"),
        *dense(f"{pool}.proj", f"{pooling}/attention/out"),
        *norm(f"{pool}.norm", f"{pooling}/norm"),
        *dense(f"{pool}.mlp.fc1", f"{pooling}/mlp/up"),
        *dense(f"{pool}.mlp.fc2", f"{pooling}/mlp/down"),
    ]


def eva02_rules() -> list[Rule]:
    """Rules of EVA02-CLIP, B and L; its rotary table is a buffer, not in the file."""
    block, ours = "visual.trunk.blocks.{i}", "image/block_{i}"
    kernels = rename.query_key_value(f"{ours}/attention", "kernel")
    parts = tuple(f"{block}.attn.{part}_proj.weight" for part in "qkv")
    return [
        *_eva(),
        rule(parts, kernels, rename.SEPARATE_WEIGHT),
        # EVA's keys have no bias (it would add the same to all logits of a query).
        rule(f"{block}.attn.q_proj.bias", f"{ours}/attention/query/bias"),
        rule(f"{block}.attn.v_proj.bias", f"{ours}/attention/value_bias"),
        # EVA02's inner norms, before the output matrix of the attention and of the gated MLP
        # (SwiGLU).
        *norm(f"{block}.attn.norm", f"{ours}/attention/norm"),
        *dense(f"{block}.mlp.fc1_g", f"{ours}/mlp/gate"),
        *dense(f"{block}.mlp.fc1_x", f"{ours}/mlp/up"),
        *norm(f"{block}.mlp.norm", f"{ours}/mlp/norm"),
    ]


def eva01_rules() -> list[Rule]:
    """Rules of EVA01-CLIP g, and of EVA02-CLIP E, whose blocks have the same names."""
    block, ours = "visual.trunk.blocks.{i}", "image/block_{i}"
    kernels = rename.query_key_value(f"{ours}/attention", "kernel")
    return [
        *_eva(),
        rule(f"{block}.attn.qkv.weight", kernels, rename.PACKED_WEIGHT),
        rule(f"{block}.attn.q_bias", f"{ours}/attention/query/bias"),
        rule(f"{block}.attn.v_bias", f"{ours}/attention/value_bias"),
        *dense(f"{block}.mlp.fc1", f"{ours}/mlp/up"),
    ]


def roberta_rules() -> list[Rule]:
    """Rules of CLIP with RoBERTa or XLM-RoBERTa as the text tower (HFTextEncoder)."""
    return [
        *(each for each in openai.rules() if not each.is_of("text")),
        *bert.rules("text.transformer.", "text/encoder"),
        *dense("text.transformer.pooler.dense", "text/pooler"),
        rule("text.proj.weight", "text/projection/kernel", rename.TRANSPOSED),
        rule("text.proj.0.weight", "text/projection_up/kernel", rename.TRANSPOSED),
        rule("text.proj.2.weight", "text/projection_down/kernel", rename.TRANSPOSED),
    ]


# Buffers of older transformers.


def _eva() -> list[Rule]:
    """Rules that all EVA models share."""
    return [*_image_tower(), *_projected()]


def _projected() -> list[Rule]:
    """Rules of timm's projection, of the text tower and of the scale."""
    return [
        *dense("visual.trunk.head", "image/projection"),
        *openai.text_tower("text."),
        rule("text.text_projection", "text/projection/kernel"),
        rule("logit_scale", "logit_scale", rename.SCALAR),
        rule("logit_bias", "logit_bias", rename.SCALAR),  # of models trained with the sigmoid loss
    ]


def _image_tower() -> list[Rule]:
    """Rules that timm's VisionTransformer and Eva share."""
    trunk, block, ours = "visual.trunk", "visual.trunk.blocks.{i}", "image/block_{i}"
    return [
        rule(f"{trunk}.patch_embed.proj.weight", "image/patch_embedding/kernel", rename.PATCHES),
        rule(f"{trunk}.patch_embed.proj.bias", "image/patch_embedding/bias"),
        rule(f"{trunk}.cls_token", "image/class_embedding", rename.LEADING_ONES),
        rule(f"{trunk}.pos_embed", "image/position_embedding", rename.LEADING_ONE),
        *norm(f"{trunk}.norm_pre", "image/pre_norm"),
        *norm(f"{block}.norm1", f"{ours}/attention_norm"),
        *dense(f"{block}.attn.proj", f"{ours}/attention/out"),
        *norm(f"{block}.norm2", f"{ours}/mlp_norm"),
        *dense(f"{block}.mlp.fc2", f"{ours}/mlp/down"),
        *norm(f"{trunk}.norm", "image/norm"),
    ]
