"""Renaming rules of Hugging Face's CLIPModel, SiglipModel (SigLIP 2 of fixed resolution too) and
Dinov2Model (with registers too)."""

from vlc_jax.weights import rename
from vlc_jax.weights.openai import attention, dense, norm, separate
from vlc_jax.weights.rename import Codec, Rule, rule

DINOV2_IGNORED = (r"embeddings\.mask_token",)  # read in pretraining only


def _blocks(theirs: str, ours: str) -> list[Rule]:
    block = f"{theirs}.encoder.layers.{{i}}"
    projections = [f"{block}.self_attn.{part}_proj" for part in "qkv"]
    return [
        *norm(f"{block}.layer_norm1", f"{ours}/attention_norm"),
        *separate(projections, f"{ours}/attention"),
        *dense(f"{block}.self_attn.out_proj", f"{ours}/attention/out"),
        *norm(f"{block}.layer_norm2", f"{ours}/mlp_norm"),
        *dense(f"{block}.mlp.fc1", f"{ours}/mlp/up"),
        *dense(f"{block}.mlp.fc2", f"{ours}/mlp/down"),
    ]


def _embeddings(patches: Codec) -> list[Rule]:
    image, text = "vision_model.embeddings", "text_model.embeddings"
    return [
        rule(f"{image}.patch_embedding.weight", "image/patch_embedding/kernel", patches),
        rule(f"{image}.position_embedding.weight", "image/position_embedding"),
        rule(f"{text}.token_embedding.weight", "text/token_embedding/embedding"),
        rule(f"{text}.position_embedding.weight", "text/position_embedding"),
        *_blocks("vision_model", "image/block_{i}"),
        *_blocks("text_model", "text/block_{i}"),
        *norm("vision_model.post_layernorm", "image/norm"),
        *norm("text_model.final_layer_norm", "text/norm"),
    ]


def clip_rules() -> list[Rule]:
    """Rules of CLIPModel; "pre_layrnorm" is spelled like this in transformers."""
    return [
        *_embeddings(rename.PATCHES),
        rule("vision_model.embeddings.class_embedding", "image/class_embedding"),
        *norm("vision_model.pre_layrnorm", "image/pre_norm"),
        rule("visual_projection.weight", "image/projection/kernel", rename.TRANSPOSED),
        rule("text_projection.weight", "text/projection/kernel", rename.TRANSPOSED),
        rule("logit_scale", "logit_scale", rename.SCALAR),
    ]


def siglip_rules(patches: Codec = rename.PATCHES) -> list[Rule]:
    """Rules of SiglipModel, also the class of SigLIP 2 of fixed resolution; patches: of NaFlex."""
    head, pooling = "vision_model.head", "image/pooling"
    return [
        *_embeddings(patches),
        rule("vision_model.embeddings.patch_embedding.bias", "image/patch_embedding/bias"),
        rule(f"{head}.probe", f"{pooling}/probe", rename.LEADING_ONE),
        # Only the pooling is a torch.nn.MultiheadAttention, so only its projections are packed.
        *attention(f"{head}.attention", f"{pooling}/attention"),
        *norm(f"{head}.layernorm", f"{pooling}/norm"),
        *dense(f"{head}.mlp.fc1", f"{pooling}/mlp/up"),
        *dense(f"{head}.mlp.fc2", f"{pooling}/mlp/down"),
        *dense("text_model.head", "text/projection"),
        rule("logit_scale", "logit_scale", rename.SCALAR_OF_ONE),
        rule("logit_bias", "logit_bias", rename.SCALAR_OF_ONE),
    ]


def _dinov2_rules() -> list[Rule]:
    """Rules without the MLPs."""
    block, ours, embeddings = "encoder.layer.{i}", "image/block_{i}", "embeddings"
    projections = [f"{block}.attention.attention.{part}" for part in ("query", "key", "value")]
    patches = f"{embeddings}.patch_embeddings.projection"
    return [
        rule(f"{patches}.weight", "image/patch_embedding/kernel", rename.PATCHES),
        rule(f"{patches}.bias", "image/patch_embedding/bias"),
        rule(f"{embeddings}.cls_token", "image/class_embedding", rename.LEADING_ONES),
        rule(f"{embeddings}.register_tokens", "image/register_tokens", rename.LEADING_ONE),
        rule(f"{embeddings}.position_embeddings", "image/position_embedding", rename.LEADING_ONE),
        *norm(f"{block}.norm1", f"{ours}/attention_norm"),
        *separate(projections, f"{ours}/attention"),
        *dense(f"{block}.attention.output.dense", f"{ours}/attention/out"),
        rule(f"{block}.layer_scale1.lambda1", f"{ours}/attention_scale"),
        *norm(f"{block}.norm2", f"{ours}/mlp_norm"),
        rule(f"{block}.layer_scale2.lambda1", f"{ours}/mlp_scale"),
        *norm("layernorm", "image/norm"),
    ]


def dinov2_mlp_rules() -> list[Rule]:
    """Rules of Dinov2Model and Dinov2WithRegistersModel, S, B and L."""
    theirs, ours = "encoder.layer.{i}.mlp", "image/block_{i}/mlp"
    return [
        *_dinov2_rules(),
        *dense(f"{theirs}.fc1", f"{ours}/up"),
        *dense(f"{theirs}.fc2", f"{ours}/down"),
    ]


def dinov2_swiglu_rules() -> list[Rule]:
    """Rules of g, whose MLPs are SwiGLUs: the gate is the first half of a joint matrix."""
    theirs, ours = "encoder.layer.{i}.mlp", "image/block_{i}/mlp"
    kernels, biases = (
        [f"{ours}/{part}/{kind}" for part in ("gate", "up")] for kind in ("kernel", "bias")
    )
    return [
        *_dinov2_rules(),
        rule(f"{theirs}.weights_in.weight", kernels, rename.stacked(2)),
        rule(f"{theirs}.weights_in.bias", biases, rename.STACKED_BIAS),
        *dense(f"{theirs}.weights_out", f"{ours}/down"),
    ]
