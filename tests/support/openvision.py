"""JAX checkpoints of OpenVision, in its authors' form, of arrays with the names of open_clip."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from vlc_jax.weights import rename


def flax_tree(arrays: Mapping[str, np.ndarray], heads: int | None = None) -> dict[str, Any]:
    """The authors' JAX parameters of arrays with the names of open_clip.

    heads: of their older attention, whose matrices have an axis of heads; None: of two axes.
    """
    tree = {
        "img/cls": arrays["visual.class_embedding"][None, None],
        "img/embedding/kernel": arrays["visual.conv1.weight"].transpose(2, 3, 1, 0),
        "img/head/kernel": arrays["visual.proj"],
        "txt/Embed_0/embedding": arrays["token_embedding.weight"],
        "txt/pos_embedding": arrays["positional_embedding"][None],
        "txt/head/kernel": arrays["text_projection"],
        "txt_decoder/head/kernel": np.ones((3, 2), np.float32),
        "t": arrays["logit_scale"][None],
    }
    norms = {"img/encoder_norm": "visual.ln_post", "txt/encoder_norm": "ln_final"}
    for part, prefix in (("img", "visual."), ("txt", "")):
        depth = sum(
            re.fullmatch(rf"{prefix}transformer\..*\.ln_1\.bias", name) is not None
            for name in arrays
        )
        for i in range(depth):
            ours = f"{part}/Transformer/encoderblock_{i}"
            theirs = f"{prefix}transformer.resblocks.{i}"
            norms |= {f"{ours}/LayerNorm_{n}": f"{theirs}.ln_{n + 1}" for n in (0, 1)}
            for n, name in enumerate(("c_fc", "c_proj")):
                dense = f"{ours}/MlpBlock_0/Dense_{n}"
                tree[f"{dense}/kernel"] = arrays[f"{theirs}.mlp.{name}.weight"].T
                tree[f"{dense}/bias"] = arrays[f"{theirs}.mlp.{name}.bias"]
            attention = f"{ours}/MultiHeadDotProductAttention_0"
            packed = [np.split(arrays[f"{theirs}.attn.in_proj_{x}"], 3) for x in ("weight", "bias")]
            for name, weight, bias in zip(("query", "key", "value"), *packed, strict=True):
                shape = (heads, -1) if heads else (-1,)
                tree[f"{attention}/{name}/kernel"] = weight.T.reshape(len(weight), *shape)
                tree[f"{attention}/{name}/bias"] = bias.reshape(shape)
            out = arrays[f"{theirs}.attn.out_proj.weight"].T
            tree[f"{attention}/out/kernel"] = out.reshape(heads, -1, len(out)) if heads else out
            tree[f"{attention}/out/bias"] = arrays[f"{theirs}.attn.out_proj.bias"]
    for ours, theirs in norms.items():
        tree |= {f"{ours}/scale": arrays[f"{theirs}.weight"]}
        tree |= {f"{ours}/bias": arrays[f"{theirs}.bias"]}
    return rename.unflatten(tree)


def write_orbax(folder: Path, params: Mapping[str, Any], step: int = 7) -> None:
    """A training state as the authors write it, one folder per step."""
    state = {"params": params, "opt": {"0": {"mu": params}, "count": np.zeros((), np.int32)}}
    with ocp.CheckpointManager(folder / "jax_orbax_weight" / "checkpoint.npz") as manager:
        manager.save(step, args=ocp.args.StandardSave(state))
