"""Sizes of published language models: fields of lm.Decoder by name."""

from typing import Any

from vlc_jax.models import rope


def _sizes(
    vocab: int, width: int, depth: int, heads: int, mlp_width: int, **more: Any
) -> dict[str, Any]:
    names = ("vocab", "width", "depth", "heads", "mlp_width")
    return dict(zip(names, (vocab, width, depth, heads, mlp_width), strict=True)) | more


_GEMMA = {
    "epsilon": 1e-6,
    "activation": "gelu_tanh",
    "is_tied": True,
    "unit_offset": True,
    "scales_embeddings": True,
}
_MPT = {"activation": "gelu", "is_tied": True, "is_centred": True, "is_gated": False, "alibi": 8.0}
_LLAMA3 = _sizes(128_256, 4096, 32, 32, 14_336, kv_heads=8, theta=500_000.0)
# Sizes of the published config.json files; tests/models/test_lm.py has the parameter counts.
VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": _sizes(128, 48, 3, 6, 64, kv_heads=2),
    "vicuna_7b": _sizes(32_000, 4096, 32, 32, 11_008),  # v1.5, the sizes of Llama 2
    "llama3_8b": _LLAMA3,
    "llama31_8b": {**_LLAMA3, "scaling": rope.Scaling("llama3", 8192, 8.0)},
    "phi3_mini": _sizes(32_064, 3072, 32, 32, 8192, window=2047),  # the 4k model
    "gemma_2b": _sizes(256_000, 2048, 18, 8, 16_384, kv_heads=1, **_GEMMA),
    # Gemma 2B with location and segmentation tokens; 64 more in Hugging Face's files
    "paligemma_3b": _sizes(257_216, 2048, 18, 8, 16_384, kv_heads=1, **_GEMMA),
    "mpt_7b": _sizes(50_432, 4096, 32, 32, 16_384, **_MPT),
    "qwen3_vl_2b": _sizes(
        vocab=151_936,
        width=2048,
        depth=28,
        heads=16,
        mlp_width=6144,
        kv_heads=8,
        head_width=128,
        epsilon=1e-6,
        theta=5e6,
        qk_norm=True,
        is_tied=True,
        sections=(24, 20, 20),
    ),
    "gemma3_4b": _sizes(
        vocab=262_208,
        width=2560,
        depth=34,
        heads=8,
        mlp_width=10_240,
        kv_heads=4,
        head_width=256,
        theta=1e6,
        scaling=rope.Scaling("linear", 0, 8.0),
        window=1024,
        global_every=6,
        qk_norm=True,
        post_norms=True,
        **_GEMMA,
    ),
}
