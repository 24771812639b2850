"""DCSM: dense cosine similarity maps of image and text tokens, scored by a small network.

"Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025, arXiv:2503.08723; Raphoo/DCSM_Ideal_CLIP):

    M_pt = v_p u_t,   score = network((M - mean) / std)

with v and u the projected tokens of the towers, of unit length, including class, start, end and
padding tokens (for SigLIP's tokens see models/vit.py). The column of a functional word ("left",
"not") is a fixed vector of that word instead, one number per image token.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import dcsm_network, heads, layers
from vlc_jax.types import ImageFeatures, TextFeatures

WORDS = ("above", "below", "left", "right", "small", "big", "not", "no", "without", "but", "absent")
# running moments: plain mean of so many steps, then weight 1 / MOMENT_STEPS
MOMENT_STEPS = 1000


class DCSM(heads.Head):
    """The similarity map, its standardisation and its network.

    patches, length: tokens of an image and of a text; they fix the sizes of the network.
    num_functional_words: number of words with a vector of their own, which fills their column of
      the map; 0 for none. `text_marks` of the batch holds their positions. The authors' vectors are
      not trained: put "head/functional_words" into config.frozen.
    functional_words: replace the column of the word's token | insert a column for the word (the
      text is cut at the end; `insert_columns`).
    standardise: tensor (mean and standard deviation over all maps that are scored together, the
      authors' choice, so that each score depends on the others: in training all images with all
      texts of the batch, in `score_options` the options of one image) | per_pair (over each map) |
      running (tensor in training, running moments in evaluation, as in batch norm, so that scores
      are independent).
    network: cnn | mlp, both from the authors.
    layout: flat (the authors': the map is an image of one channel, image tokens by text tokens) |
      grid (rows and columns of the image, a channel per text token, no class token).
    adapter: v and u come from a trained linear layer of `width` per tower on the output of its last
      norm, normalised, instead of the tower's own projection (our addition, mainly for SigLIP,
      whose patches are not trained to lie in the shared embedding).
    dropout: rate for channels, hidden units and the score itself, as in the authors' code.
    chunk: images per device, and texts, at a time, for memory; changes no result.
    """

    patches: int
    length: int
    num_functional_words: int = len(WORDS)
    functional_words: Literal["replace", "insert"] = "replace"
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
            shape = self.num_functional_words, self._map_patches
            self.word_vectors = self.param("functional_words", _word_vectors, shape)
        # arrays and no modules: the network runs inside lax.map, which can call no bound module
        self.net = {
            name: self.param(name, init, shape)
            for name, (init, shape) in dcsm_network.parameters(
                self.network, self.layout, self._map_patches, self.length, self.hidden
            ).items()
        }
        if self.standardise == "running":
            # variables, not parameters: the optimizer must neither decay nor update them
            self.running = {
                key: self.variable("batch_stats", key, jnp.zeros, ())
                for key in ("mean", "square", "steps")
            }

    @property
    def _map_patches(self) -> int:
        return self.patches - (self.layout == "grid" and self.has_class_token)

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """The tokens of both towers, projected by the tower unless there is an adapter."""
        tokens = types.FeatureRequest("normed" if self.adapter else "projected")
        return tokens, tokens

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: v; with layout grid without the class token."""
        del is_training
        if self.adapter:
            tokens = layers.l2_normalize(self.image_adapter(features.tokens))
            features = features._replace(tokens=tokens)
        if self.layout == "grid" and self.has_class_token:
            return features._replace(tokens=features.tokens[:, 1:])
        return features

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`tokens`: u, 0 in the columns of functional words; `marks`: the word of each column."""
        del is_training
        tokens, marks = features.tokens, features.marks
        if not self.num_functional_words:
            marks = jnp.zeros(tokens.shape[:2], jnp.int8)
        elif marks is None:
            raise errors.UsageError(
                f"this head has vectors of {self.num_functional_words} functional words, and the "
                "batch has no text_marks (their positions): use "
                "input_pipeline.FunctionalWordTokenizer (config.text.functional_words), or set "
                "num_functional_words=0"
            )
        if self.adapter:
            tokens = layers.l2_normalize(self.text_adapter(tokens))
        if self.functional_words == "insert":
            tokens, marks = insert_columns(tokens, marks, self.num_functional_words)
        return features._replace(tokens=jnp.where(marks[..., None] > 0, 0, tokens), marks=marks)

    def outputs(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures]
    ) -> tuple[heads.Scores, dict[str, Array]]:
        """Scores of captions and hard texts, standardised together as in the authors' code;
        updates the running moments if "batch_stats" is mutable."""
        is_update = self.is_mutable_collection("batch_stats") and not self.is_initializing()
        if self.standardise == "running" and is_update:
            columns = self._word_columns(texts["text"])
            _update(self.running, *_batch_moments(image, texts["text"], columns))
        scaling = self._scaling(image, [*texts.values()], is_training=True)
        options = {"is_training": True, "scaling": scaling}
        return {
            kind: (self.score(image, text, **options), self.score_options(image, text, **options))
            for kind, text in texts.items()
        }, {}

    def score(
        self,
        image: ImageFeatures,
        text: TextFeatures,
        *,
        is_training: bool = False,
        scaling: tuple[Array, Array] | None = None,
    ) -> Float[Array, "images texts"]:
        """The network's output for every image with every text.

        scaling: mean and standard deviation of the maps, if already computed.
        """
        if scaling is None:
            scaling = self._scaling(image, [text], is_training)

        def share(images: tuple[Array, Array], replicated: tuple) -> Array:
            texts, scaling, net, key = replicated

            def chunk_scores(
                images: tuple[Array, Array], texts: tuple[Array, Array, Array]
            ) -> Array:
                (patches, image_index), (tokens, columns, text_index) = images, texts
                maps = jnp.einsum("npd,mtd->ptnm", patches, tokens, precision="highest")
                # u is 0 in the columns of functional words: adding their vectors replaces them
                maps += jnp.moveaxis(columns, 0, 2)[:, :, None]
                keys = _keys(key, image_index, jnp.tile(text_index, (len(image_index), 1)))
                return self._network(net, maps, scaling, keys)

            return heads.map_pairs_in_chunks(chunk_scores, images, texts, self.chunk)

        images = image.tokens, jnp.arange(len(image.tokens))
        texts = text.tokens, self._word_columns(text), jnp.arange(len(text.tokens))
        key = self.make_rng("dropout") if is_training and self.dropout else None
        return types.map_sharded(share, images, (texts, scaling, self.net, key))

    def score_options(
        self,
        image: ImageFeatures,
        text: TextFeatures,
        *,
        is_training: bool = False,
        scaling: tuple[Array, Array] | None = None,
    ) -> Float[Array, "images options"]:
        """The network's output for image i with its own k texts; `scaling`: as in `score`."""
        images = len(image.tokens)
        tokens, columns = (
            x.reshape(images, -1, *x.shape[1:]) for x in (text.tokens, self._word_columns(text))
        )
        maps = jnp.einsum("npd,nktd->ptnk", image.tokens, tokens, precision="highest")
        maps += jnp.transpose(columns, (2, 3, 0, 1))
        if scaling is None and self.standardise == "running" and not is_training:
            scaling = _running_scaling(self.running)
        elif scaling is None and self.standardise != "per_pair":
            mean = maps.mean(axis=(0, 1, 3), keepdims=True)
            scaling = mean, maps.std(axis=(0, 1, 3), keepdims=True, ddof=1)
        options = jnp.arange(maps[0, 0].size).reshape(images, -1)
        key = self.make_rng("dropout") if is_training and self.dropout else None
        keys = _keys(key, jnp.arange(images), options)
        return self._network(self.net, maps, scaling, keys)

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """similarity: M, not standardised, and its columns."""
        products = jnp.einsum("npd,ntd->npt", image.tokens, text.tokens, precision="highest")
        is_word = text.marks > 0
        token = jnp.arange(is_word.shape[1])[None]
        # every inserted column shifts the tokens behind it
        if self.functional_words == "insert":
            token = token - jnp.cumsum(is_word, axis=1)
        columns = jnp.where(is_word, -text.marks, token)
        return {"similarity": products + self._word_columns(text), "columns": columns}

    def _word_columns(self, text: TextFeatures) -> Float[Array, "texts patches length"]:
        """Per-patch vectors of the functional words, in their columns; 0 in all others."""
        if not self.num_functional_words:
            return jnp.zeros((len(text.tokens), self._map_patches, text.tokens.shape[1]))
        is_word = jax.nn.one_hot(text.marks - 1, self.num_functional_words)
        return jnp.einsum("tlw,wp->tpl", is_word, self.word_vectors, precision="highest")

    def _scaling(
        self, image: ImageFeatures, texts: Sequence[TextFeatures], is_training: bool
    ) -> tuple[Array, Array] | None:
        """Mean and standard deviation over the maps of all images with all `texts`, computed
        without the maps; None with per_pair."""
        if self.standardise == "per_pair":
            return None
        if self.standardise == "running" and not is_training:
            return _running_scaling(self.running)
        parts = [_batch_moments(image, text, self._word_columns(text)) for text in texts]
        cells = [_cells(image.tokens, text.tokens) for text in texts]
        count = sum(cells)
        mean, square = (
            sum(cell / count * value for cell, value in zip(cells, values, strict=True))
            for values in zip(*parts, strict=True)
        )
        # the unbiased deviation of torch.std, which the authors call
        return mean, jnp.sqrt((square - mean**2) * (count / (count - 1)))

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
        return dcsm_network.score(net, x, self.layout, self.dropout, keys).reshape(maps.shape[2:])


def _keys(
    key: jax.Array | None, images: Int[Array, " images"], texts: Int[Array, "images texts"]
) -> jax.Array | None:
    """A key per map, image by image, derived from the indices of its image and text in the batch:
    dropout does not depend on chunks and devices."""
    if key is None:
        return None
    image_keys = jax.vmap(lambda image: jax.random.fold_in(key, image))(images)
    keys = jax.vmap(jax.vmap(jax.random.fold_in, in_axes=(None, 0)))(image_keys, texts)
    return keys.reshape(-1)


def _update(
    running: Mapping[str, nn.Variable], mean: Float[Array, ""], square: Float[Array, ""]
) -> None:
    """Running moments: the mean of the first MOMENT_STEPS training steps, then an exponential
    moving average."""
    steps = running["steps"]
    share = 1 / jnp.minimum(steps.value + 1, MOMENT_STEPS)
    for name, value in (("mean", mean), ("square", square)):
        running[name].value = running[name].value + share * (value - running[name].value)
    steps.value = steps.value + 1


def _running_scaling(running: Mapping[str, nn.Variable]) -> tuple[Array, Array]:
    mean, square = running["mean"].value, running["square"].value
    return mean, jnp.sqrt(square - mean**2)


def insert_columns(
    tokens: Float[Array, "texts length embed"], marks: Int[Array, "texts length"], num_words: int
) -> tuple[Array, Array]:
    """Tokens and marks with a column inserted for each mark, both cut to the original length.

    As in the authors' code, words are inserted one after the other, in the order of their list, at
    the position of the mark in the original text: a word later in the list and in the text lands as
    many columns before its token as were inserted before it.
    """
    columns = jnp.arange(tokens.shape[1])[None]
    source, inserted = jnp.broadcast_to(columns, marks.shape), jnp.zeros_like(marks)
    for mark in range(1, num_words + 1):
        is_marked = marks == mark
        # no such mark: a position beyond the last column, so that nothing is inserted
        position = jnp.where(is_marked.any(axis=1), jnp.argmax(is_marked, axis=1), marks.shape[1])
        is_new, is_behind = columns == position[:, None], columns > position[:, None]
        source = jnp.where(is_behind, jnp.roll(source, 1, axis=1), source)
        inserted = jnp.where(is_behind, jnp.roll(inserted, 1, axis=1), inserted)
        inserted = jnp.where(is_new, jnp.asarray(mark, marks.dtype), inserted)
    return jnp.take_along_axis(tokens, source[..., None], axis=1), inserted


def _batch_moments(
    image: ImageFeatures, text: TextFeatures, columns: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    compute = types.auto_sharded(moments, splits_rows=False)
    return compute(image.tokens, text.tokens, columns)


def moments(
    image: Float[Array, "images patches embed"],
    text: Float[Array, "texts length embed"],
    columns: Float[Array, "texts patches length"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and mean square over all maps, exact and without computing a map.

    sum M = (sum v)(sum u) and sum M^2 = <sum v v', sum u u'>; the columns of functional words,
    where u is 0, are the same for all images.
    """
    images, count = len(image), _cells(image, text)
    total = jnp.einsum("npd,mtd->", image, text, precision="highest", optimize="optimal")
    outer = [jnp.einsum("npd,npe->de", x, x, precision="highest") for x in (image, text)]
    squares = jnp.sum(outer[0] * outer[1]) + images * jnp.sum(columns**2)
    return (total + images * jnp.sum(columns)) / count, squares / count


def _cells(image: Array, text: Array) -> float:
    """Number of elements of all maps, as a float: 1,024 images and texts overflow an int32."""
    return float(len(image) * len(text) * image.shape[1] * text.shape[1])


def _word_vectors(key: jax.Array, shape: tuple[int, int]) -> Float[Array, "words patches"]:
    return (layers.l2_normalize(jax.random.normal(key, shape)) + 1) / 3
