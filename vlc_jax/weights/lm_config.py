"""config.json of a language model of Hugging Face <-> fields of models.lm.Decoder.

The fields are plain values: a rope scaling is a dict of the fields of models.rope.Scaling.
"""

from collections.abc import Collection, Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights.huggingface_config import MAX_DEPTH, transformer
from vlc_jax.weights.sections import Key, Section, mapping, names

MPT = "mpt"
_SWITCHES = ("attention_bias", "mlp_bias", "use_bidirectional_attention")
# Sections by model_type, with the defaults of transformers' classes.
LLAMA = Section(
    {
        "vocab": Key("vocab_size", 32_000),
        **transformer(4096, 32, 32, 11_008),
        "kv_heads": Key("num_key_value_heads"),
        "head_width": Key("head_dim"),
        "epsilon": Key("rms_norm_eps", 1e-6),
        "is_tied": Key("tie_word_embeddings", False),
        "theta": Key("rope_theta", 1e4),
        "positions": Key("max_position_embeddings", 2048),
    },
    fixed={
        "hidden_act": ("silu",),
        "partial_rotary_factor": (1.0,),
        **dict.fromkeys(_SWITCHES, (False,)),
        **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), ()),
    },
    constant={
        "activation": "silu",
        "unit_offset": False,
        "scales_embeddings": False,
        "window": None,
    },
    shown=names(
        "layer_types original_max_position_embeddings rope_parameters rope_scaling sliding_window"
    ),
)
_WINDOW = {"window": Key("sliding_window")}
_GEMMA = LLAMA.but(
    # older files have "gelu", but mean its tanh approximation
    fixed={
        "hidden_act": ("gelu_pytorch_tanh", "gelu"),
        "hidden_activation": ("gelu_pytorch_tanh",),
    },
    constant={"activation": "gelu_tanh", "unit_offset": True, "scales_embeddings": True},
    tie_word_embeddings=True,
    head_dim=256,
)
FAMILIES = {
    "llama": LLAMA,
    "mistral": LLAMA.but(
        _WINDOW,
        intermediate_size=14_336,
        num_key_value_heads=8,
        sliding_window=4096,
        max_position_embeddings=131_072,
    ),
    "phi3": LLAMA.but(
        _WINDOW,
        vocab_size=32_064,
        hidden_size=3072,
        intermediate_size=8192,
        rms_norm_eps=1e-5,
        max_position_embeddings=4096,
    ),
    "gemma": _GEMMA.but(
        vocab_size=256_000,
        hidden_size=3072,
        intermediate_size=24_576,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
    ),
    "gemma3_text": _GEMMA.but(
        {
            **_WINDOW,
            "scale_width": Key("query_pre_attn_scalar", 256),
            "local_theta": Key("rope_local_base_freq", 1e4),
            "global_every": Key("sliding_window_pattern", 6, other="_sliding_window_pattern"),
        },
        constant={"qk_norm": True, "post_norms": True},
        vocab_size=262_208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=131_072,
        sliding_window=4096,
        rope_theta=1e6,
    ),
    # of Qwen3-VL; the embedder has no logits, so that its embeddings count as shared
    "qwen3_vl_text": LLAMA.but(
        constant={"qk_norm": True},
        vocab_size=151_936,
        intermediate_size=22_016,
        num_key_value_heads=32,
        head_dim=128,
        rope_theta=5e5,
    ),
}
# MPT, whose blocks and positions (ALiBi) are others.
_MPT = Section(
    {
        "vocab": Key("vocab_size", 50_368),
        "width": Key("d_model", 2048),
        "depth": Key("n_layers", 24, range(1, MAX_DEPTH + 1)),
        "heads": Key("n_heads", 16),
        "mlp_width": Key("expansion_ratio", 4),
        "epsilon": Key("layer_norm_epsilon", 1e-5),
    },
    fixed={
        "no_bias": (True,),
        "norm_type": ("low_precision_layernorm", "layernorm"),
        "logit_scale": (),
        "pruned_heads": ({},),
        "tie_word_embeddings": (True,),
    },
    constant={
        "scaling": None,
        "activation": "gelu",
        "is_tied": True,
        "is_centred": True,
        "is_gated": False,
    },
    shown=("attn_config",),
)
_MPT_ATTENTION = Section(
    {"alibi": Key("alibi_bias_max", 8.0)},
    fixed={
        "alibi": (True,),
        "attn_type": ("multihead_attention",),
        "attn_uses_sequence_id": (False,),
        "clip_qkv": (),
        "prefix_lm": (False,),
        "qk_ln": (False,),
        "softmax_scale": (),
    },
)


def positions(family: str) -> Key:
    """The key of the longest text; MPT's positions have no end, and its key is of training."""
    return Key("max_seq_len", 2048) if family == MPT else FAMILIES[family].fields["positions"]


# Sections of rotary frequencies, by the kind of their scaling. su: the older name of longrope.
_ROPE = Section(
    fixed={"partial_rotary_factor": (1.0,)},
    shown=names(
        """attention_factor factor high_freq_factor long_factor low_freq_factor mrope_interleaved
        mrope_section original_max_position_embeddings rope_theta rope_type short_factor type"""
    ),
)
_SCALING = _ROPE.but({"factor": Key("factor", float)}, fixed={"attention_factor": ()})
_LENGTH = {"original_length": Key("original_max_position_embeddings", int)}
_LLAMA3 = {
    "low_factor": Key("low_freq_factor", float),
    "high_factor": Key("high_freq_factor", float),
}
_LONG = {"short": Key("short_factor", tuple), "long": Key("long_factor", tuple)}
_ROPES = {
    "default": _ROPE,
    "linear": _SCALING.but(constant={"original_length": 0}),
    "llama3": _SCALING.but(_LENGTH | _LLAMA3),
    "longrope": _SCALING.but(_LENGTH | _LONG, factor=0.0),
}
_KIND = Key("rope_type", "default", {**{x: x for x in _ROPES}, "su": "longrope"}, "type")
_LOCAL_ROPE = _ROPE.but(fixed={"rope_type": ("default",)})
_MROPE = _ROPE.but({"sections": Key("mrope_section", (24, 20, 20))}, {"mrope_interleaved": (True,)})
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"  # kinds of blocks of Gemma 3


def read(
    text: Any, family: str, where: str = "config.json", others: Collection[str] = ()
) -> dict[str, Any]:
    """Fields of models.lm.Decoder of a config.json, or of its text_config.

    family: MPT, or a key of FAMILIES.   where, others: as in Section.read.
    Raises WeightsError for a decoder that models.lm does not support.
    """
    if family == MPT:
        fields = _MPT.read(text, where)
        attention = _MPT_ATTENTION.read(text.get("attn_config"), f"{where}, attn_config")
        return {**fields, "mlp_width": fields["mlp_width"] * fields["width"], **attention}
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise WeightsError(
            f"{where}: model_type {family[:50]!r} is no known language model: {known}"
        )
    text, section = mapping(text, where), FAMILIES[family]
    fields = section.read(text, where, others)
    if "window" in section.fields and text.get("sliding_window", 0) is None:
        fields["window"] = None  # a window by default, and null says that there is none
    # since transformers 5; Gemma 3 has one entry per kind of attention
    parameters = mapping(text.get("rope_parameters"), f"{where}, rope_parameters")
    whole = parameters.get("full_attention", parameters)
    rope = {
        "original_max_position_embeddings": text.get("original_max_position_embeddings"),
        **mapping(text.get("rope_scaling"), f"{where}, rope_scaling"),
        **mapping(whole, f"{where}, rope_parameters"),
    }
    where_rope = f"{where}, rope_parameters or rope_scaling"
    fields["theta"] = Key("rope_theta", fields["theta"]).read(rope, where_rope)
    fields["scaling"] = _scaling(rope, fields.pop("positions"), where_rope)
    head, width = fields["head_width"], fields["width"] // fields["heads"]
    if family == "gemma3_text":
        local = mapping(parameters.get("sliding_attention"), where_rope)
        fields["local_theta"] = Key("rope_theta", fields["local_theta"]).read(local, where_rope)
        _LOCAL_ROPE.read(local, f"{where_rope}, sliding_attention")
        if text.get("layer_types") is not None:
            fields["global_every"] = _global_every(text["layer_types"], fields["depth"], where)
        fields["scale_width"] = None if fields["scale_width"] == head else fields["scale_width"]
    elif family == "qwen3_vl_text":
        fields |= {"is_tied": True, **_MROPE.read(rope, where_rope)}
        if len(fields["sections"]) != 3 or sum(fields["sections"]) != head // 2:
            raise WeightsError(
                f"{where_rope}: mrope_section is {fields['sections']}; only three numbers whose "
                f"sum is half of head_dim, {head // 2}, are supported"
            )
    return fields | {"head_width": None if head == width else head}


def _scaling(rope: Mapping[str, Any], positions: int, where: str) -> dict[str, Any] | None:
    kind = _KIND.read(rope, where)
    scaling = _ROPES[kind].read(rope, where)
    if kind == "default":
        return None
    factor = scaling["factor"] or positions / scaling["original_length"]
    return {"kind": kind, **scaling, "factor": factor}


def _global_every(kinds: Any, depth: int, where: str) -> int:
    every = [*kinds, _GLOBAL].index(_GLOBAL) + 1 if isinstance(kinds, list) else 1
    if kinds != _layer_types(every, depth):
        raise WeightsError(
            f"{where}: layer_types of {depth} blocks; only {_GLOBAL} in every n-th, and {_LOCAL} "
            "in all others, is supported"
        )
    return every


def _layer_types(every: int, depth: int) -> list[str]:
    return [(_LOCAL, _GLOBAL)[(layer + 1) % every == 0] for layer in range(depth)]


def write(family: str, lm: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `read`."""
    section, scaling = FAMILIES[family], lm["scaling"]
    head = lm["head_width"] or lm["width"] // lm["heads"]
    fields = {**lm, "head_width": head, "kv_heads": lm["kv_heads"] or lm["heads"]}
    rope, lengths = {"rope_theta": lm["theta"], "rope_type": "default"}, dict[str, Any]()
    if scaling is not None:
        rope |= {**_ROPES[scaling["kind"]].write(scaling), "rope_type": scaling["kind"]}
        if original := scaling["original_length"]:
            fields["positions"] = round(original * scaling["factor"])
        if scaling["kind"] == "longrope":  # its factor is the quotient of both lengths
            lengths = {"original_max_position_embeddings": original}
            del rope["factor"]
    if family == "gemma3_text":
        fields["scale_width"] = lm["scale_width"] or head
    content = {
        "model_type": family,
        **section.write(fields),
        "hidden_act": section.fixed["hidden_act"][0],
        "rope_parameters": rope,
        **lengths,
    }
    if family != "gemma3_text":
        return content
    # with the names of transformers 5 and the earlier names
    local = {"rope_theta": lm["local_theta"], "rope_type": "default"}
    earlier = {key: value for key, value in rope.items() if key != "rope_theta"}
    return content | {
        "hidden_activation": content["hidden_act"],
        "layer_types": _layer_types(lm["global_every"], lm["depth"]),
        "rope_parameters": {_GLOBAL: rope, _LOCAL: local},
        "rope_scaling": earlier if scaling else None,
    }
