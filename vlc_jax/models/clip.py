"""Dual encoders: CLIP (Radford et al. 2021), SigLIP (Zhai et al. 2023), and other heads on them."""

import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import types
from vlc_jax.models import heads
from vlc_jax.models.text import end_of_text, real_tokens
from vlc_jax.models.text_vectors import is_vectors
from vlc_jax.types import ImageFeatures, TextFeatures


class CLIP(nn.Module):
    """An image tower, a text tower, and a head that scores their features (CLIP: the cosine).

    logit_scale_init: linear, 1/0.07 for CLIP and 10 for SigLIP; the parameter `logit_scale` is
      its logarithm.   logit_bias_init: -10 for SigLIP; None for a model without a bias.
    """

    image: nn.Module
    text: nn.Module
    logit_scale_init: float = 1 / 0.07
    logit_bias_init: float | None = None
    head: nn.Module = heads.Head()

    @property
    def has_head(self) -> bool:
        """False if the score is the dot product of pooled features (CLIP, SigLIP)."""
        return not self.head.is_dot

    @property
    def embed(self) -> int:
        """Width of the pooled features that are scored."""
        return self.head.embed or self.image.embed

    @property
    def with_tokens(self) -> "CLIP":
        """The towers with the same parameters and a head that requests all projected tokens."""
        return self.clone(head=heads.Tokens())

    @nn.compact
    def __call__(self, batch: Mapping[str, Array]) -> types.Outputs:
        """Features and scores of a training batch (input_pipeline/batch.py), as losses read them.

        Keys: "image" (normalised, float), "text" and optionally "question" (per image), "has_image"
        (False for a text without an image), "negative_text" and "positive_text" (batch, texts of
        one example, length), "crops" and "masked_patches" for the losses on them; texts are token
        ids or vectors. Precomputed features ("image_pooled",
        "text_pooled", ...) replace pixels and accompany texts; the towers then do not run and need
        no parameters. With the results of `micro_features` in the batch, the head's `image` and
        `text` do not run either.

        `scores` are always computed; XLA drops them when no loss reads them.
        """
        if "image_embedding" in batch:
            keys, _ = _all_texts(batch)
            image = ImageFeatures(batch["image_embedding"])
            texts = {key: TextFeatures(batch[f"{key}_embedding"]) for key in keys}
        else:
            image, texts = self._training_image(batch), self._training_texts(batch)
        constant = nn.initializers.constant
        log_scale = self.param("logit_scale", constant(math.log(self.logit_scale_init)), ())
        bias = None
        if self.logit_bias_init is not None:
            bias = self.param("logit_bias", constant(self.logit_bias_init), ())
        hard = {kind: text for kind, text in texts.items() if kind != "text"}
        flat = {"text": texts["text"]}
        flat |= {kind: jax.tree.map(_flat, text) for kind, text in hard.items()}
        scale = jnp.exp(log_scale)
        scores, more = self.head.outputs(image, flat)
        more |= {**hard, **_scores(scores, batch)}
        if isinstance(self.head, heads.Local):
            more["local"] = _scores(self.head.local(image, flat, scale), batch)
        if isinstance(self.head, heads.Prototypes):
            views = self._views(batch)
            more["view_logits"] = self.head.view_logits(
                image,
                views.get("crops_pooled"),
                views.get("masked_tokens"),
                batch.get("masked_patches"),
            )
        if isinstance(self.head, heads.Matching):
            drawn = (batch.get("id"), batch.get("mask"))
            more["matching"] = self.head.matching(image, texts["text"], scale, *drawn)
        return types.Outputs(
            image=image, text=texts["text"], logit_scale=scale, logit_bias=bias, **more
        )

    def encode_image(
        self,
        image: Float[Array, "batch height width channels"],
        question: Int[Array, "batch length"] | None = None,
    ) -> ImageFeatures:
        """Image features for `score`, from normalised pixels; needs only the parameters of the
        image tower and of the head.

        question: token ids of a question about each image, for heads with a decoder.
        """
        features = self.image(image, self.head.requests[0])
        return self.head.image(features._replace(question=self._question(question)))

    def encode_text(
        self, text: types.Text, marks: Int[Array, "batch length"] | None = None
    ) -> TextFeatures:
        """Text features for `score`, from token ids or text vectors; needs only the parameters of
        the text tower and of the head.

        marks: positions of functional words (`text_marks` of a batch), for heads that use them.
        """
        features = self.text(text, self.head.requests[1])
        return self.head.text(features._replace(marks=marks, ids=self._ids(text)))

    def tower_features(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Tower features of a training batch, under the names of precomputed features
        (`image_pooled`, `negative_text_tokens`, ...); with them `__call__` runs no tower.

        Row i depends on row i alone, so that any rows can be encoded at a time. A tower whose
        features are already in the batch adds nothing.
        """
        by_kind = {}
        if "image" in batch:
            by_kind["image"] = self.image(batch["image"], self.head.requests[0])
        if "text_pooled" not in batch:
            keys, text = _all_texts(batch)
            features = self.text(_flat(text), self.head.requests[1])
            by_kind |= _by_kind(batch, keys, features._replace(mask=None))
        return {
            f"{kind}_{part}": array
            for kind, features in by_kind.items()
            for part, array in features._asdict().items()
            if array is not None
        } | self._views(batch)

    def micro_features(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Per-row features of a micro-batch (GradCache); `__call__` on them equals `__call__` on
        the batch. They are `tower_features`, or the head's embeddings if the head works row by
        row."""
        if not self.head.is_row_wise:
            return self.tower_features(batch)
        texts = self._training_texts(batch)
        pooled = {f"{key}_embedding": features.pooled for key, features in texts.items()}
        return {"image_embedding": self._training_image(batch).pooled, **pooled}

    def _training_image(self, batch: Mapping[str, Array]) -> ImageFeatures:
        if "image" in batch:
            features = self.image(batch["image"], self.head.requests[0])
        else:
            stored = (batch.get(f"image_{part}") for part in ImageFeatures._fields)
            features = jax.tree.map(_float, ImageFeatures(*stored))
        question = self._question(batch.get("question"))
        features = features._replace(question=question, has_image=batch.get("has_image"))
        return self.head.image(features, is_training=True)

    def _views(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Features of further views of each image, where the batch has them or what they need.

        crops_pooled: (batch, crops, embed), of the crops.   masked_tokens: (batch, patches, width),
        of the image with the head's mask token in place of its masked patches.
        """
        names = ("crops_pooled", "masked_tokens")
        found = {name: batch[name] for name in names if name in batch}
        if "crops" in batch:
            pooled = self.image(_flat(batch["crops"]), is_crop=True).pooled
            found["crops_pooled"] = pooled.reshape(*batch["crops"].shape[:2], -1)
        if "masked_patches" in batch and "image" in batch:
            masked = batch["masked_patches"], self.head.mask_token
            features = self.image(batch["image"], self.head.requests[0], masked)
            found["masked_tokens"] = features.tokens
        return found

    def _training_texts(self, batch: Mapping[str, Array]) -> dict[str, TextFeatures]:
        """Features of all texts of a batch, from one pass of the tower."""
        keys, text = _all_texts(batch)
        if "text_pooled" in batch:
            features = jax.tree.map(_flat, self._stored_texts(batch, keys, text))
        else:
            features = self.text(_flat(text), self.head.requests[1])
        if "text_marks" in batch:
            marks = _side_by_side([batch[f"{key}_marks"] for key in keys])
            features = features._replace(marks=_flat(marks))
        # after the tower, whose features have no ids: only a decoder reads them
        features = features._replace(ids=self._ids(_flat(text)))
        return _by_kind(batch, keys, self.head.text(features, is_training=True))

    def _question(
        self, ids: Int[Array, "batch length"] | None
    ) -> Int[Array, "batch length"] | None:
        """Ids of questions, with NOT_ASKED instead of the end token and of padding."""
        if ids is None:
            return None
        is_asked = jnp.arange(ids.shape[1])[None] < end_of_text(ids, self.text.eos_id)[:, None]
        return jnp.where(is_asked, ids, types.NOT_ASKED)

    def _ids(self, text: types.Text) -> Int[Array, "batch length"] | None:
        return text if self.head.requests[1].tokens == "ids" else None

    def _stored_texts(
        self,
        batch: Mapping[str, Array],
        keys: Sequence[str],
        text: Int[Array, "batch texts length"] | Float[Array, "batch texts width"],
    ) -> TextFeatures:
        """Precomputed features of the texts of `keys`, (batch, texts of one example, ...)."""

        def stored(part: str) -> Array | None:
            arrays = [batch.get(f"{key}_{part}") for key in keys]
            return None if arrays[0] is None else _side_by_side([_float(x) for x in arrays])

        if is_vectors(text):
            return TextFeatures(stored("pooled"))
        mask = real_tokens(_flat(text), self.text.eos_id).reshape(text.shape)
        return TextFeatures(stored("pooled"), stored("tokens"), mask)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Scores of every image with every text."""
        return self.head.score(image, text)

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Scores of image i with its own k texts, rows i*k to i*k + k - 1 of `text`."""
        return self.head.score_options(image, text)

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """Patch-level weights behind the score of image i with text i (heads.Head.patch_maps)."""
        return self.head.patch_maps(image, text)


def _float(x: Array) -> Array:
    return x.astype(jnp.float32)


def _all_texts(batch: Mapping[str, Array]) -> tuple[list[str], Array]:
    """The keys of the texts of a batch, and the texts side by side."""
    # The texts of one example stay together on axis 1 until it is flattened: appended to axis 0,
    # hard texts would have to move between the devices that the batch is sharded over.
    keys = [key for key in ("text", "negative_text", "positive_text") if key in batch]
    return keys, _side_by_side([batch[key] for key in keys])


def _by_kind(
    batch: Mapping[str, Array], keys: Sequence[str], features: TextFeatures
) -> dict[str, TextFeatures]:
    """Splits features of all texts (batch * texts, ...) into features of captions (batch, ...) and
    of each kind of hard texts (batch, n, ...)."""
    counts = [1, *(batch[key].shape[1] for key in keys[1:])]
    features = jax.tree.map(lambda x: x.reshape(-1, sum(counts), *x.shape[1:]), features)
    parts = {
        key: jax.tree.map(lambda x, end=end, n=count: x[:, end - n : end], features)
        for key, count, end in zip(keys, counts, np.cumsum(counts), strict=True)
    }
    return {**parts, "text": jax.tree.map(lambda x: x[:, 0], parts["text"])}


def _scores(scores: heads.Scores, batch: Mapping[str, Array]) -> dict[str, Array]:
    """Scores of each kind of texts as the fields of types.Outputs."""
    fields = {}
    for kind, (all_pairs, own_pairs) in scores.items():
        name = kind.replace("text", "scores")
        is_caption = kind == "text"
        fields[name] = all_pairs if is_caption else all_pairs.reshape(-1, *batch[kind].shape[:2])
        fields[f"own_{name}"] = own_pairs[:, 0] if is_caption else own_pairs
    return fields


def _side_by_side(arrays: Sequence[Array]) -> Array:
    """Captions (batch, ...) and hard texts (batch, n, ...) as (batch, all texts, ...)."""
    return jnp.concatenate([arrays[0][:, None], *arrays[1:]], axis=1)


def _flat(texts: Array) -> Array:
    """(batch, texts of one example, ...) as (batch * texts, ...)."""
    return texts.reshape(-1, *texts.shape[2:])
