"""Models: `build` constructs one by name; it has encode_image, encode_text, score and __call__."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args, get_type_hints

import flax
import jax
import jax.numpy as jnp
from flax import linen as nn

from vlc_jax import errors
from vlc_jax.models import (
    blip,
    captioner,
    clip,
    dcsm,
    flair,
    heads,
    instructblip,
    labclip,
    layers,
    pacl,
    pooled,
    qwen3_vl,
    resnet,
    roberta,
    self_distilled,
    sparc,
    swin,
    text,
    text_ids,
    text_vectors,
    tflocal,
    variants,
    vit,
    vlm2vec,
    xvlm,
)
from vlc_jax.models.tower import image_shape

ImageTower = vit.ImageTower | resnet.ResNet | swin.Swin | qwen3_vl.Qwen3VLTower
TextTower = (
    text.TextTower
    | roberta.RobertaTower
    | text_vectors.VectorTower
    | text_ids.TokenIds
    | text_ids.NoTexts
)
# The name of a model is the name of its head, which scores the features of the two towers.
_OWN: dict[str, type[nn.Module]] = {
    "clip": heads.Head,
    "blip": blip.BLIP,
    "captioner": captioner.Captioner,
    "dcsm": dcsm.DCSM,
    "flair": flair.FLAIR,
    "instructblip": instructblip.InstructBLIP,
    "labclip": labclip.LABCLIP,
    "pacl": pacl.PACL,
    "pooled": pooled.Pooled,
    "qwen3_vl": qwen3_vl.Qwen3VL,
    "self_distilled": self_distilled.SelfDistilled,
    "sparc": sparc.SPARC,
    "tflocal": tflocal.TFLocal,
    "vlm2vec": vlm2vec.VLM2Vec,
    "xvlm": xvlm.XVLM,
}
HEADS = errors.Table(
    "HEADS",
    _OWN,
    "a class that inherits vlc_jax.models.heads.Head",
    lambda x: isinstance(x, type) and issubclass(x, heads.Head),
)

# Short names of overrides -> the parts of the model that have this field; a ResNet, a Swin and the
# tower of Qwen3-VL have some only.
SHORT = {
    **dict.fromkeys(("image_size",), ("image",)),
    **dict.fromkeys(("vocab_size", "context_length", "eos_id"), ("text",)),
    **dict.fromkeys(("activation", "epsilon", "initialisation"), ("image", "text")),
    **dict.fromkeys(("dtype", "remat", "scan_layers"), ("image", "text")),
    **dict.fromkeys(("logit_scale_init", "logit_bias_init"), ("clip",)),
}
# Short names that do not reach a text tower: those are RoBERTa's own.
DEEPEST = 1_000  # blocks of a tower, decoder or connector; published ones have up to 126
_LACKS = {roberta.RobertaTower: {"activation", "epsilon", "initialisation"}}
CHOICES = {
    "activation": (*layers.ACTIVATIONS, layers.SWIGLU),
    "initialisation": ("clip", "big_vision"),
    "positions": ("learned", "sincos2d"),
    "rope": ("none", "qk_1d", "qk_2d"),
    "rope_layout": ("interleaved", "halves"),
    "dtype": ("float32", "bfloat16", "float16"),
    "remat": tuple(layers.REMAT),
    "attention": ("xla", "cudnn"),
    "connector": text_vectors.CONNECTORS,
    "projection_kind": ("linear", "mlp"),
}
POOLING: dict[type[nn.Module], tuple[str, ...]] = {
    vit.ImageTower: ("cls", "mean", "map"),
    text.TextTower: ("eos", "last"),
    roberta.RobertaTower: ("mean", "cls"),
}
# Text towers, by the key "kind" of a family in variants.FAMILIES.
TEXT_TOWERS = {"clip": text.TextTower, "roberta": roberta.RobertaTower}


def build(
    name: str = "clip",
    variant: str = "mini",
    head: Mapping[str, Any] | None = None,
    vector_width: int | None = None,
    text_tower: bool = True,
    **overrides: Any,
) -> clip.CLIP:
    """The model `name` with the sizes of `variant` (variants.VARIANTS) and overrides.

    name: a head, a key of HEADS; "clip" is the dot product of pooled features (CLIP, SigLIP).
    head: fields of the head.
    vector_width: texts are precomputed vectors of this width, and `text` has the fields of
      models.text_vectors.VectorTower; None: texts are token ids.
    text_tower: False for a model whose head, a decoder, reads the token ids itself (captioner).

    overrides: a name of `SHORT`, or `image={...}` / `text={...}` with any field of that tower.
    dtype is "float32" | "bfloat16" | "float16"; parameters are always float32.

        build("clip", "B/32", dtype="bfloat16", remat="block")
        build("clip", "mini", vocab_size=76, image={"pooling": "mean", "depth": 4})
        build("pacl", "L/14-336", vector_width=4096, text={"connector": "llm2clip"})

    Raises UsageError for an unknown name, variant, override or value.
    """
    kind = HEADS[errors.known("model", name, HEADS)]
    options = variants.options(errors.known("variant", variant, variants.VARIANTS))
    image_kind = _image_kind(options["image"])
    text_kind = TEXT_TOWERS[(options["text"] or {}).pop("kind", "clip")]
    lacks = {
        "image": {*SHORT} - {*_fields(image_kind)},
        "text": {*SHORT} if options["text"] is None else _LACKS.get(text_kind, set()),
        "clip": set(),
    }
    for key, value in overrides.items():
        errors.known("model option", key, (*SHORT, "image", "text"))
        for part in SHORT.get(key, ()):
            if key not in lacks[part]:
                options[part][key] = value
    if vector_width is not None:
        options["text"] = _vector_options(vector_width, options["text"] or {}, overrides)
    # after the short names: the more specific one wins
    for part in ("image", "text"):
        if options[part] is not None:
            options[part].update(overrides.get(part, {}))
    check_depth(f"the model {name}", {**options, "head": head or {}})
    image = _tower(image_kind, "image", options["image"])
    if options["text"] is None:
        texts = _no_texts(variant, image.embed, overrides.get("text", {}))
    else:
        texts = _text_tower(text_kind, options["text"], vector_width, text_tower)
    _check_head(name, kind, head or {})
    scoring_head = _head(kind, head or {}, image, texts)
    if vector_width is not None:
        _check_vectors(name, scoring_head, image, texts)
    return clip.CLIP(image, texts, **options["clip"], head=scoring_head)


def _image_kind(options: Mapping[str, Any]) -> type[nn.Module]:
    if "deepstack" in options:
        return qwen3_vl.Qwen3VLTower
    if "window" in options:
        return swin.Swin
    return resnet.ResNet if "stages" in options else vit.ImageTower


def _text_tower(
    kind: type[nn.Module], options: Mapping[str, Any], vector_width: int | None, has_tower: bool
) -> TextTower:
    if vector_width is not None:
        return _tower(text_vectors.VectorTower, "text", options)
    if has_tower:
        return _tower(kind, "text", options)
    fields = ("vocab_size", "context_length", "eos_id")
    return text_ids.TokenIds(**{key: options[key] for key in fields})


def _no_texts(variant: str, embed: int, options: Mapping[str, Any]) -> text_ids.NoTexts:
    if options:
        raise errors.UsageError(
            f"{variant} has no text tower, so no {', '.join(options)} of one; its texts may be "
            "vectors (config.text.tokenizer='vectors')"
        )
    return text_ids.NoTexts(embed=embed)


def _vector_options(
    width: int, text_options: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Options of a VectorTower, from the options of the text tower that it replaces.

    Raises UsageError for overrides that only a text tower has.
    """
    for key in ("vocab_size", "context_length", "eos_id"):
        if key in overrides:
            raise errors.UsageError(
                f"the model option {key} needs a text tower; here texts are vectors"
            )
    shared = ("projection", "dtype")
    return {"width": width} | {key: text_options[key] for key in shared if key in text_options}


def _check_vectors(
    name: str, head: nn.Module, image: ImageTower, text_tower: text_vectors.VectorTower
) -> None:
    """Raises UsageError if the head cannot score vectors of texts."""
    if head.requests[1].tokens != "none":
        raise errors.UsageError(
            f"the model {name} reads the tokens of a text, and text vectors have no tokens: use "
            "clip, labclip or pacl"
        )
    widths = image.embed, text_tower.embed
    if name in ("clip", "labclip") and len(set(widths)) > 1:
        raise errors.UsageError(
            f"the image tower gives {widths[0]} numbers, the connector of the text vectors "
            f"{widths[1]}: set the projection of the text to {widths[0]}"
        )


def _check_head(name: str, kind: type[nn.Module], options: Mapping[str, Any]) -> None:
    """Raises UsageError for an unknown option, or an unknown value of a Literal option."""
    for key in options:
        errors.known(f"option of the model {name}", key, _fields(kind))
    choices = {key: get_args(hint) for key, hint in get_type_hints(kind).items() if key in options}
    for key, known in choices.items():
        if all(isinstance(value, str) for value in known) and known:
            errors.known(f"{key} of the model {name}", options[key], known)


def _head(
    kind: type[nn.Module], options: Mapping[str, Any], image: ImageTower, text_tower: TextTower
) -> nn.Module:
    """The head; fields that describe the towers are filled in unless they are among `options`.
    Raises UsageError for masked patches in a tower that has none."""
    if kind is self_distilled.SelfDistilled:
        name = type(image).__name__ if not isinstance(image, vit.ImageTower) else "NaFlex"
        if name != "NaFlex" or image.position_grid:
            raise errors.UsageError(
                "the model self_distilled masks patches of a vision transformer over squares, and "
                f"this image tower is a {name}: take another config.model.variant"
            )
    has_class_token = image.has_class_token
    from_towers = {
        "has_class_token": has_class_token,
        "patches": image.grid**2 + has_class_token,
        "length": getattr(text_tower, "context_length", 0),  # vectors have no tokens
        "width": image.embed,
        "tower_width": getattr(image, "width", 0),  # a ResNet has several
        "vocab_size": getattr(text_tower, "vocab_size", 0),
        "dtype": image.dtype,
        "remat": image.remat,
    }
    fields = _fields(kind)
    options = {key: _hashable(value) for key, value in options.items()}
    return kind(**{key: from_towers[key] for key in from_towers if key in fields} | options)


def _hashable(value: Any) -> Any:
    """A model is a static argument of compiled functions."""
    if isinstance(value, Mapping):
        return flax.core.freeze({key: _hashable(inner) for key, inner in value.items()})
    return tuple(value) if isinstance(value, list) else value


def example_batch(model: clip.CLIP, size: int = 1) -> dict[str, jax.Array]:
    """A batch of zeros with the input shapes of `model`, for init and eval_shape."""
    if isinstance(model.text, text_vectors.VectorTower):
        text_ = jnp.zeros((size, model.text.width), jnp.float32)
    else:
        text_ = jnp.zeros((size, model.text.context_length), jnp.int32)
    batch = {"image": jnp.zeros((size, *image_shape(model.image))), "text": text_}
    if model.head.reads_marks:
        batch["text_marks"] = jnp.zeros(text_.shape, jnp.int8)
    return batch


def init(model: clip.CLIP, key: jax.Array) -> dict[str, Any]:
    """Fresh parameters, float32; no forward pass is run."""
    return _init(model, key)["params"]


def init_batch_stats(model: clip.CLIP) -> dict[str, Any]:
    """Initial running statistics (the collection "batch_stats"), all 0; {} for a model without."""
    shapes = jax.eval_shape(lambda: _init(model, jax.random.key(0))).get("batch_stats", {})
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


# Jitted so that shapes, state and statistics share one trace; XLA drops the forward pass.
@partial(jax.jit, static_argnums=0)
def _init(model: clip.CLIP, key: jax.Array) -> dict[str, Any]:
    return model.init({"params": key, "dropout": key}, example_batch(model))


def parameter_counts(params: Mapping[str, Any]) -> dict[str, int]:
    """Parameter counts of each tower, of the head if it has parameters, and in total; `params` is
    a tree of arrays or shapes."""
    total = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    parts = {part: total[part] for part in ("image", "text", "head") if part in total}
    return parts | {"total": sum(total.values())}


def check_depth(what: str, options: Mapping[str, Any]) -> None:
    """Raises UsageError for more blocks than anybody trains: to trace millions takes for ever."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            check_depth(f"{what}, {key}", value)
        elif key in ("depth", "blocks", "stages"):
            for blocks in value if isinstance(value, tuple | list) else [value]:
                if isinstance(blocks, int) and blocks > DEEPEST:
                    raise errors.UsageError(f"{what}: {key} is at most {DEEPEST:,}; got {value!r}")


def _tower(kind: type[nn.Module], part: str, options: Mapping[str, Any]) -> nn.Module:
    """The tower. Raises UsageError for unknown options and values that do not fit together."""
    fields = _fields(kind)
    for key, value in options.items():
        errors.known(f"option of the {part} tower", key, fields)
        choices = POOLING.get(kind) if key == "pooling" else CHOICES.get(key)
        if choices:
            errors.known(f"{key} of the {part} tower", value, choices)
    width, heads = options["width"], options.get("heads", 1)
    if width % heads:
        raise errors.UsageError(f"{part} width {width} is not divisible by {heads} heads")
    options = {**options, "dtype": jnp.dtype(options.get("dtype", "float32"))}
    if kind in (resnet.ResNet, swin.Swin):
        options["stages"] = tuple(options["stages"])
        multiple = options.get("patch_size", resnet.STRIDE) * options.get("window", 1)
        if options["image_size"] % multiple:
            raise errors.UsageError(
                f"a {kind.__name__} takes images of a multiple of {multiple} pixels; got "
                f"{options['image_size']}: set config.input.image_size"
            )
    elif kind is qwen3_vl.Qwen3VLTower:
        options["deepstack"] = tuple(options["deepstack"])
    elif part == "image":
        options["stem"] = tuple(options.get("stem", ()))
        _check_image(options)
    return kind(**options)


def _check_image(options: Mapping[str, Any]) -> None:
    """Raises UsageError for options of the image tower that do not fit together."""
    stem, width, heads = options["stem"], options["width"], options["heads"]
    if bool(stem) == bool(options["patch_size"]):
        raise errors.UsageError(
            f"an image tower has a stem or a patch_size; got stem {stem} and patch_size "
            f"{options['patch_size']}; set the other to () or None"
        )
    if stem and stem[-1] != width:
        raise errors.UsageError(f"the stem {stem} must end with the image width, {width}")
    if stem and options["activation"] == layers.SWIGLU:
        raise errors.UsageError(
            f"{layers.SWIGLU} is an activation of MLPs, not of a stem; known: "
            f"{', '.join(layers.ACTIVATIONS)}"
        )
    if options.get("position_grid"):
        _check_naflex(options)
    positions = options.get("rope", "none")
    divisor = {"none": 1, "qk_1d": 2, "qk_2d": 4}[positions]
    if width // heads % divisor:
        raise errors.UsageError(
            f"rope {positions} needs a head width divisible by {divisor}; got image width {width} /"
            f" {heads} heads = {width // heads}"
        )
    if positions == "qk_1d" and options.get("rope_span") is not None:
        raise errors.UsageError(
            f"rope_span={options['rope_span']} is an option of rope qk_2d; set it to None for qk_1d"
        )


def _check_naflex(options: Mapping[str, Any]) -> None:
    """Raises UsageError for what a tower over images of any aspect ratio does not have."""
    side, patch = options["image_size"], options["patch_size"]
    if not patch or side % patch or side < 4:
        raise errors.UsageError(
            f"a NaFlex tower takes as many patches as a square of image_size has: it must be a "
            f"multiple of patch_size; got {side} and {patch}"
        )
    fixed = {"pooling": "map", "class_token": False, "registers": 0, "rope": "none"}
    fixed |= {"positions": "learned", "norm_after_pooling": False}
    for key, value in fixed.items():
        # the default of `pooling` is cls, those of the others are the values here
        if (found := options.get(key, "cls" if key == "pooling" else value)) != value:
            raise errors.UsageError(
                f"a NaFlex tower (position_grid) has {key}={value!r}; got {found!r}"
            )


def _fields(module: type[nn.Module]) -> list[str]:
    """Names of the fields of a module, without those of every Linen module."""
    return [field.name for field in dataclasses.fields(module) if field.name not in _LINEN]


_LINEN = ("parent", "name")
