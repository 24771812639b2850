"""Analytic floating-point operations of a model: 2 per multiply-add, matrix products only.

Norms, activations and softmax are left out, as in open_clip's docs/model_profile.csv and in most
published MFU figures. Rematerialised blocks are counted once: counted twice, the result would be
hardware utilisation (HFU), not MFU.

tokens=True counts every block on every token, as published figures do. tokens=False, the default,
counts the operations of a pooled feature: if pooling reads one token, the last block computes
mostly that token. Use the default for MFU: the published count would overstate it.
"""

from collections.abc import Collection

from flax import linen as nn

from vlc_jax.models import heads, layers, text, text_ids, text_vectors, vit
from vlc_jax.models.tower import Tower


def image_tower(tower: vit.ImageTower, *, tokens: bool = False) -> int:
    """Forward FLOPs of one image."""
    patches, width = tower.grid**2, tower.width
    if tower.stem:
        embedding, side = 0, tower.image_size
        for inputs, outputs in zip((3, *tower.stem[:-1]), tower.stem, strict=True):
            side //= 2
            embedding += 2 * side**2 * 9 * inputs * outputs
    else:
        embedding = 2 * patches * 3 * tower.patch_size**2 * width
    length = patches + (tower.pooling == "cls")
    pooling = 0
    if tower.pooling == "map":  # key and value of all tokens; query, out and MLP of one
        attention = length * 2 * width**2 + 2 * length * width + 2 * width**2
        pooling = 2 * (attention + _mlp(tower))
    reads_one = tower.pooling == "cls" and not tokens
    return embedding + _blocks(tower, length, reads_one) + pooling + _projection(tower)


def text_tower(
    tower: text.TextTower | text_vectors.VectorTower | text_ids.TokenIds,
    *,
    length: int | None = None,
    tokens: bool = False,
) -> int:
    """Forward FLOPs of one text of `length` tokens (default: the context length), or of one text
    vector.
    """
    if isinstance(tower, text_vectors.VectorTower):
        return _connector(tower)
    if isinstance(tower, text_ids.TokenIds):
        return 0
    return _blocks(tower, length or tower.context_length, not tokens) + _projection(tower)


def train_step(
    model: nn.Module,
    *,
    texts: int = 1,
    frozen: Collection[str] = (),
    stored: Collection[str] = (),
    tokens: bool = False,
) -> int:
    """Training FLOPs of one image with its `texts` texts: 3 x forward; 1 x forward for a tower in
    `frozen`, 0 for a tower in `stored` (precomputed features).

    frozen, stored: any of "image", "text". Not counted: the head, see `head`, and the similarity
    matrix (6 x embed x batch per image and text), below 1 % of the towers up to batches of tens of
    thousands.
    """
    reads_all = [tokens or request.has_tokens for request in model.head.requests]
    forward = {
        "image": image_tower(model.image, tokens=reads_all[0]),
        "text": texts * text_tower(model.text, tokens=reads_all[1]),
    }
    passes = {name: 0 if name in stored else 1 if name in frozen else 3 for name in forward}
    return sum(passes[name] * count for name, count in forward.items())


def head(
    model: nn.Module,
    *,
    pairs: int,
    texts: int = 1,
    frozen: Collection[str] = (),
    trained: float = 1.0,
    question: int = 0,
) -> int:
    """Training FLOPs of the head for one image with its `texts` texts, scored with `pairs` texts
    (of the batch, or of its sub-batch); rematerialised work is counted once.

    frozen: as in `train_step`.   trained, question: as in heads.FlopInputs.
    """
    image, text_ = model.image, model.text
    widths = [
        tower.width if request.tokens in ("raw", "normed") else tower.embed
        for tower, request in zip((image, text_), model.head.requests, strict=True)
    ]
    sizes = heads.FlopInputs(
        patches=image.grid**2 + (image.pooling == "cls"),
        length=getattr(text_, "context_length", 1),  # a vector counts as one token
        image=widths[0],
        text=widths[1],
        texts=texts,
        pairs=pairs,
        frozen=("image" in frozen, "text" in frozen),
        trained=trained,
        question=question,
    )
    return model.head.flops(sizes)


def _blocks(tower: Tower, length: int, reads_one: bool) -> int:
    whole = _block(tower, length, length)
    return (tower.depth - 1) * whole + (_block(tower, length, 1) if reads_one else whole)


def _block(tower: Tower, length: int, queries: int) -> int:
    """FLOPs of a block: queries, output and MLP of `queries` tokens, keys and values of all."""
    width = tower.width
    dense = queries * (2 * width**2 + _mlp(tower)) + length * 2 * width**2
    attention = 2 * queries * length * width  # scores and mix; causal masks save nothing
    return 2 * (dense + attention)


def _mlp(tower: Tower) -> int:
    """Multiply-adds of one token."""
    matrices = 3 if tower.activation == layers.SWIGLU else 2
    return matrices * tower.width * (tower.mlp_width or 4 * tower.width)


def _connector(tower: text_vectors.VectorTower) -> int:
    width, embed = tower.width, tower.embed
    return (
        2
        * {
            "none": 0,
            "linear": width * embed,
            "mlp2x_gelu": (width + embed) * embed,
            "llm2clip": (2 * tower.blocks * tower.expansion * width + embed) * width,
        }[tower.connector]
    )


def _projection(tower: Tower) -> int:
    return 2 * tower.width * (tower.projection or 0)
