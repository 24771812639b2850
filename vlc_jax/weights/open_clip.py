"""The names of open_clip's SigLIP models: a timm vision transformer and open_clip's text tower.

Its CLIP models have OpenAI's names (`openai.rules`).
"""

from vlc_jax.weights import openai, rename
from vlc_jax.weights.openai import dense, norm
from vlc_jax.weights.rename import Rule, rule


def siglip_rules(patch_size: int) -> list[Rule]:
    """SigLIP and SigLIP 2 of fixed resolution."""
    trunk, block, pool = "visual.trunk", "visual.trunk.blocks.{i}", "visual.trunk.attn_pool"
    ours, pooling = "image/block_{i}", "image/pooling"
    kernels = (f"{ours}/attention/query/kernel", f"{ours}/attention/key_value/kernel")
    biases = (f"{ours}/attention/query/bias", f"{ours}/attention/key_value/bias")
    patches = rename.convolution(patch_size)
    return [
        rule(f"{trunk}.patch_embed.proj.weight", "image/patch_embedding/kernel", patches),
        rule(f"{trunk}.patch_embed.proj.bias", "image/patch_embedding/bias"),
        rule(f"{trunk}.pos_embed", "image/position_embedding", rename.LEADING_ONE),
        *norm(f"{block}.norm1", f"{ours}/attention_norm"),
        rule(f"{block}.attn.qkv.weight", kernels, rename.PACKED_WEIGHT),
        rule(f"{block}.attn.qkv.bias", biases, rename.PACKED_BIAS),
        *dense(f"{block}.attn.proj", f"{ours}/attention/out"),
        *norm(f"{block}.norm2", f"{ours}/mlp_norm"),
        *dense(f"{block}.mlp.fc1", f"{ours}/mlp/up"),
        *dense(f"{block}.mlp.fc2", f"{ours}/mlp/down"),
        *norm(f"{trunk}.norm", "image/norm"),
        rule(f"{pool}.latent", f"{pooling}/probe", rename.LEADING_ONE),
        *dense(f"{pool}.q", f"{pooling}/attention/query"),
        *dense(f"{pool}.kv", f"{pooling}/attention/key_value"),
        *dense(f"{pool}.proj", f"{pooling}/attention/out"),
        *norm(f"{pool}.norm", f"{pooling}/norm"),
        *dense(f"{pool}.mlp.fc1", f"{pooling}/mlp/up"),
        *dense(f"{pool}.mlp.fc2", f"{pooling}/mlp/down"),
        *openai.text_tower("text."),
        *dense("text.text_projection", "text/projection"),
        rule("logit_scale", "logit_scale", rename.SCALAR),
        rule("logit_bias", "logit_bias", rename.SCALAR),
    ]
