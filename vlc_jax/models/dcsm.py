"""DCSM: a small network reads the map of all image tokens against all text tokens.

"Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025, arXiv:2503.08723; Raphoo/DCSM_Ideal_CLIP):

    M_pt = v_p u_t,   score = network((M - mean) / std)

with v and u the projected tokens of the towers, of unit length, class, start, end and padding
tokens among them (of SigLIP's: models/vit.py). Columns of functional words ("left", "not") hold
instead a fixed vector of the word, one number per image token.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import dcsm_network, heads, layers

WORDS = ("above", "below", "left", "right", "small", "big", "not", "no", "without", "but", "absent")


class DCSM(heads.Head):
    """The map, its standardisation and its network.

    patches, length: tokens of an image and of a text; the network is made for these numbers.
    num_functional_words: words that have a vector of their own, which fills their column of the
      map; 0 for none. The batch says where they stand (`text_marks`).
    functional_words: replace the column of the word's token | insert a column before it (the text
      is cut at the end).
    train_functional_words: whether the vectors are trained; the authors' are not.
    standardise: tensor (mean and deviation of all maps that are scored together, as the authors do:
      a score depends on the others. In training those of all images with all texts of the batch,
      else in `score_options` those of one image) | per_pair | running (in training as tensor; in
      evaluation by the average over steps, so that scores stand alone).
    network: cnn | mlp, both the authors'.
    layout: flat (the authors': an image token per row, a text token per column, one channel) |
      grid (rows and columns of the image, a channel per text token, no class token).
    adapter: v and u are trained linear maps, one for each side, of what the last norm of the towers
      gives, and not the towers' own projections (ours, above all for SigLIP, whose patches are not
      trained to lie in the shared embedding), of unit length and `width`.
    dropout: of channels, hidden units and the score itself, as the authors have it.
    chunk: images on each device, and texts, at a time, for memory; changes no result.
    """

    patches: int
    length: int
    num_functional_words: int = len(WORDS)
    functional_words: Literal["replace", "insert"] = "replace"
    train_functional_words: bool = False
    standardise: Literal["tensor", "per_pair", "running"] = "tensor"
    network: Literal["cnn", "mlp"] = "cnn"
    layout: Literal["flat", "grid"] = "flat"
    has_class_token: bool = True
    adapter: bool = False
    width: int | None = None
    hidden: int = 128
    dropout: float = 0.0
    chunk: int = 16

    def setup(self) -> None:
        if self.adapter:
            self.image_adapter = layers.Dense(self.width)
            self.text_adapter = layers.Dense(self.width)
        if self.num_functional_words:
            shape = self.num_functional_words, self._seen_patches
            self.word_vectors = self.param("functional_words", _word_vectors, shape)
        self.net = {
            name: self.param(name, init, shape)
            for name, (init, shape) in dcsm_network.parameters(
                self.network, self.layout, self._seen_patches, self.length, self.hidden
            ).items()
        }
        if self.standardise == "running":
            zero = nn.initializers.zeros
            self.running = {key: self.param(key, zero, ()) for key in ("mean", "square", "steps")}

    @property
    def _seen_patches(self) -> int:
        return self.patches - (self.layout == "grid" and self.has_class_token)

    @property
    def wanted(self) -> tuple[types.Wanted, types.Wanted]:
        """The tokens of both towers: projected, unless that is done here."""
        tokens = types.Wanted("normed" if self.adapter else "projected")
        return tokens, tokens

    def image(
        self, features: types.ImageFeatures, *, is_training: bool = False
    ) -> types.ImageFeatures:
        """The tokens; for the grid without the class token."""
        del is_training
        if self.adapter:
            tokens = layers.unit_length(self.image_adapter(features.tokens))
            features = features._replace(tokens=tokens)
        if self.layout == "grid" and self.has_class_token:
            return features._replace(tokens=features.tokens[:, 1:])
        return features

    def text(
        self, features: types.TextFeatures, *, is_training: bool = False
    ) -> types.TextFeatures:
        """`tokens`: the vectors of the columns, 0 where a word's own column stands; `marks`: which
        word that is, counted from 1."""
        del is_training
        tokens, marks = features.tokens, features.marks
        if not self.num_functional_words:
            marks = jnp.zeros(tokens.shape[:2], jnp.int8)
        elif marks is None:
            raise errors.UsageError(
                f"this head has vectors of {self.num_functional_words} functional words, and no "
                "text_marks say where they stand: use input_pipeline.FunctionalWordTokenizer "
                "(config.text.functional_words), or set num_functional_words=0"
            )
        if self.adapter:
            tokens = layers.unit_length(self.text_adapter(tokens))
        if self.functional_words == "insert":
            tokens, marks = inserted(tokens, marks)
        return features._replace(tokens=jnp.where(marks[..., None] > 0, 0, tokens), marks=marks)

    def outputs(
        self, image: types.ImageFeatures, text: types.TextFeatures
    ) -> dict[str, dict[str, Float[Array, ""]]]:
        """Mean and mean square of the maps of the batch, where evaluation needs their average."""
        if self.standardise != "running":
            return {}
        mean, square = moments(image.tokens, text.tokens, self._columns(text))
        return {"statistics": {"mean": mean, "square": square}}

    def all_scores(
        self, image: types.ImageFeatures, texts: Mapping[str, types.TextFeatures]
    ) -> dict[str, tuple[Array, Array]]:
        """As the authors have it: captions and hard negatives are standardised together."""
        scaling = self._scaling(image, [*texts.values()], is_training=True)
        options = {"is_training": True, "scaling": scaling}
        return {
            kind: (self.score(image, text, **options), self.score_options(image, text, **options))
            for kind, text in texts.items()
        }

    def flops(self, work: heads.Work) -> int:
        """The maps, the network on each of them, and the moments of all."""
        trained = 2 - sum(work.is_fixed)  # towers
        patches = self._seen_patches
        total = (1 + trained) * 2 * work.pairs * patches * self.length * work.image
        if self.standardise != "per_pair":
            tokens = patches, work.texts * self.length
            total += sum(
                (1 if is_fixed else 3) * 2 * count * work.image**2
                for count, is_fixed in zip(tokens, work.is_fixed, strict=True)
            )
        is_first, cells = True, patches * (self.length if self.layout == "flat" else 1)
        shapes = dcsm_network.parameters(
            self.network, self.layout, patches, self.length, self.hidden
        )
        for _, shape in shapes.values():
            if len(shape) > 1:
                uses = cells if len(shape) == 4 else 1
                has_input_gradient = not is_first or trained or self.train_functional_words
                passes = 3 if has_input_gradient else 2
                total += passes * 2 * work.pairs * uses * math.prod(shape)
                is_first = False
        return total

    def score(
        self,
        image: types.ImageFeatures,
        text: types.TextFeatures,
        *,
        is_training: bool = False,
        scaling: tuple[Array, Array] | None = None,
    ) -> Float[Array, "images texts"]:
        """The network's number for every image with every text; `scaling`: mean and deviation."""
        if scaling is None:
            scaling = self._scaling(image, [text], is_training)

        def share(images: tuple[Array, Array], whole: tuple) -> Array:
            texts, scaling, net, key = whole

            def part(images: tuple[Array, Array], texts: tuple[Array, Array, Array]) -> Array:
                (patches, row), (tokens, words, column) = images, texts
                maps = jnp.einsum("npd,mtd->ptnm", patches, tokens, precision="highest")
                words = jnp.moveaxis(words, 0, 2)
                keys = _keys(key, row, jnp.tile(column, (len(row), 1)))
                return self._network(net, maps + words[:, :, None], scaling, keys)

            return heads.in_blocks(part, images, texts, self.chunk)

        images = image.tokens, jnp.arange(len(image.tokens))
        texts = text.tokens, self._columns(text), jnp.arange(len(text.tokens))
        whole = (texts, scaling, self.net, self._key(is_training))
        return types.map_sharded(share, images, whole)

    def score_options(
        self,
        image: types.ImageFeatures,
        text: types.TextFeatures,
        *,
        is_training: bool = False,
        scaling: tuple[Array, Array] | None = None,
    ) -> Float[Array, "images options"]:
        """The network's number for image i with its own k texts; `scaling`: as in `score`."""
        images = len(image.tokens)
        tokens, columns = (
            x.reshape(images, -1, *x.shape[1:]) for x in (text.tokens, self._columns(text))
        )
        maps = jnp.einsum("npd,nktd->ptnk", image.tokens, tokens, precision="highest")
        maps += jnp.transpose(columns, (2, 3, 0, 1))
        if scaling is None and self.standardise == "running" and not is_training:
            scaling = self._stored()
        elif scaling is None and self.standardise != "per_pair":
            mean = maps.mean(axis=(0, 1, 3), keepdims=True)
            scaling = mean, maps.std(axis=(0, 1, 3), keepdims=True, ddof=1)
        options = jnp.arange(maps[0, 0].size).reshape(images, -1)
        keys = _keys(self._key(is_training), jnp.arange(images), options)
        return self._network(self.net, maps, scaling, keys)

    def maps(self, image: types.ImageFeatures, text: types.TextFeatures) -> dict[str, Array]:
        """similarity: M before it is standardised, and its columns."""
        products = jnp.einsum("npd,ntd->npt", image.tokens, text.tokens, precision="highest")
        is_word = text.marks > 0
        places = jnp.arange(is_word.shape[1])[None]
        if (
            self.functional_words == "insert"
        ):  # each word's column pushed the tokens behind it on by one
            places = places - jnp.cumsum(is_word, axis=1)
        columns = jnp.where(is_word, -text.marks, places)
        return {"similarity": products + self._columns(text), "columns": columns}

    def _columns(self, text: types.TextFeatures) -> Float[Array, "texts patches length"]:
        """What stands in the columns of functional words; 0 in all others."""
        if not self.num_functional_words:
            return jnp.zeros((len(text.tokens), self._seen_patches, text.tokens.shape[1]))
        vectors = self.word_vectors
        if not self.train_functional_words:
            vectors = jax.lax.stop_gradient(vectors)
        is_word = jax.nn.one_hot(text.marks - 1, self.num_functional_words)
        return jnp.einsum("tlw,wp->tpl", is_word, vectors, precision="highest")

    def _scaling(
        self, image: types.ImageFeatures, texts: Sequence[types.TextFeatures], is_training: bool
    ) -> tuple[Array, Array] | None:
        """Mean and deviation of all maps of the images with all these texts, without making them;
        None where each has its own."""
        if self.standardise == "per_pair":
            return None
        if self.standardise == "running" and not is_training:
            return self._stored()
        found = [moments(image.tokens, text.tokens, self._columns(text)) for text in texts]
        cells = [_cells(image.tokens, text.tokens) for text in texts]
        count = sum(cells)
        mean, square = (
            sum(cell / count * value for cell, value in zip(cells, values, strict=True))
            for values in zip(*found, strict=True)
        )
        return mean, jnp.sqrt((square - mean**2) * (count / (count - 1)))

    def _stored(self) -> tuple[Array, Array]:
        mean, square = self.running["mean"], self.running["square"]
        return mean, jnp.sqrt(square - mean**2)

    def _key(self, is_training: bool) -> jax.Array | None:
        return self.make_rng("dropout") if is_training and self.dropout else None

    def _network(
        self,
        net: Mapping[str, Array],
        maps: Float[Array, "patches length images texts"],
        scaling: tuple[Array, Array] | None,
        keys: jax.Array | None,
    ) -> Float[Array, "images texts"]:
        if scaling is None:
            mean = maps.mean(axis=(0, 1), keepdims=True)
            scaling = mean, maps.std(axis=(0, 1), keepdims=True, ddof=1)
        x = ((maps - scaling[0]) / scaling[1]).reshape(*maps.shape[:2], -1)
        drop = [None] * 5  # keys of every map: two convolutions, two hidden layers, the score
        if keys is not None:
            drop = list(jax.vmap(lambda key: jax.random.split(key, 5), out_axes=1)(keys))
        if self.network == "cnn":
            is_grid = self.layout == "grid"
            x = dcsm_network.grid(x) if is_grid else x[None]
            convolve = dcsm_network.multiplied if is_grid else dcsm_network.shifted
            for name, of_layer in zip(("conv_0", "conv_1"), drop[:2], strict=True):
                y = convolve(x, net[name]) + net[f"{name}_bias"][:, None, None, None]
                x = jax.nn.relu(y)
                x = dcsm_network.dropped(x, self.dropout, of_layer, (len(x), 1, 1))
        x = x.reshape(-1, x.shape[-1]).T
        *inner, last = (name for name in net if re.fullmatch(r"dense_\d", name))
        for name, of_layer in zip(inner, drop[2:], strict=False):
            x = jax.nn.relu(x @ net[name] + net[f"{name}_bias"][None])
            x = dcsm_network.dropped(x, self.dropout, of_layer, x.shape[1:], maps=0)
        x = x @ net[last] + net[f"{last}_bias"][None]
        x = dcsm_network.dropped(x, self.dropout, drop[4], x.shape[1:], maps=0)
        return x.reshape(maps.shape[2:])


def _keys(
    key: jax.Array | None, rows: Int[Array, "images"], columns: Int[Array, "images texts"]
) -> jax.Array | None:
    """A key for every map, image after image, from its row and column of the whole: parts and
    devices change no draw."""
    if key is None:
        return None
    of_row = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
    of_map = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(None, 0)))(of_row, columns)
    return of_map.reshape(-1)


def inserted(
    tokens: Float[Array, "texts length embed"], marks: Int[Array, "texts length"]
) -> tuple[Array, Array]:
    """The columns of a text with one more in front of each marked token, cut to the same length:
    their vectors, and the marks, which stand on the new columns."""
    length = tokens.shape[1]
    is_word = marks > 0
    place = jnp.arange(length)[None] + jnp.cumsum(is_word, axis=1)  # of the token itself
    rows = jnp.arange(len(tokens))[:, None]
    moved = jnp.zeros_like(tokens).at[rows, place].set(tokens, mode="drop")
    front = jnp.where(is_word, place - 1, length)
    return moved, jnp.zeros_like(marks).at[rows, front].set(marks, mode="drop")


def moments(
    image: Float[Array, "images patches embed"],
    text: Float[Array, "texts length embed"],
    columns: Float[Array, "texts patches length"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and mean square of all maps, exactly, without making one.

    sum M = (sum v)(sum u) and sum M^2 = <sum v v', sum u u'>; the columns of functional words, in
    which u is 0, are the same for all images.
    """
    images, count = len(image), _cells(image, text)
    total = jnp.einsum("npd,mtd->", image, text, precision="highest", optimize="optimal")
    outer = [jnp.einsum("npd,npe->de", x, x, precision="highest") for x in (image, text)]
    squares = jnp.sum(outer[0] * outer[1]) + images * jnp.sum(columns**2)
    return (total + images * jnp.sum(columns)) / count, squares / count


def _cells(image: Array, text: Array) -> float:
    """Numbers in all maps; of 1,024 images and texts there are more than an int32 holds."""
    return float(len(image) * len(text) * image.shape[1] * text.shape[1])


def _word_vectors(key: jax.Array, shape: tuple[int, int]) -> Float[Array, "words patches"]:
    return (layers.unit_length(jax.random.normal(key, shape)) + 1) / 3
