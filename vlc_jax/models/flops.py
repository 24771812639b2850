"""Analytic floating-point operations of the towers: 2 per multiply-add, matrix products only.

Norms, activations and softmax are left out, as in open_clip's docs/model_profile.csv and in most
published MFU figures. Rematerialised blocks are not counted twice: that is utilisation of the
hardware, not of the model.
"""

from flax import linen as nn

from vlc_jax.models import layers, text, vit


def image_tower(tower: vit.ImageTower) -> int:
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
        mlp = tower.mlp_width or 4 * width
        pooling = 2 * (length * 2 * width**2 + 2 * length * width + 2 * width**2 + 2 * width * mlp)
    return embedding + _blocks(tower, length) + pooling + _projection(tower)


def text_tower(tower: text.TextTower, length: int | None = None) -> int:
    """Forward FLOPs of one text of `length` tokens, by default the context length."""
    return _blocks(tower, length or tower.context_length) + _projection(tower)


def train_step(model: nn.Module, frozen: tuple[str, ...] = ()) -> int:
    """FLOPs of one image-text pair in training: 3 x forward, 1 x for a tower in `frozen`.

    frozen: any of "image", "text". The similarity matrix (6 x embed x batch per pair) is left
    out: below 1 % of the towers up to batches of tens of thousands.
    """
    forward = {"image": image_tower(model.image), "text": text_tower(model.text)}
    return sum(count * (1 if name in frozen else 3) for name, count in forward.items())


def _blocks(tower: layers.Tower, length: int) -> int:
    width, mlp = tower.width, tower.mlp_width or 4 * tower.width
    dense = 2 * length * (4 * width**2 + 2 * width * mlp)
    attention = 2 * 2 * length**2 * width  # scores and mix; causal masks save nothing
    return tower.depth * (dense + attention)


def _projection(tower: layers.Tower) -> int:
    return 2 * tower.width * (tower.projection or 0)
