"""Patches pooled for each text by a rule without parameters (models/pooling.py), on any towers.

The local terms of FSC-CLIP and C2LIP train with these scores beside the dot product of pooled
features, by which both are evaluated; with scoring=local they are the score of the model.
"""

from collections.abc import Mapping
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax import errors, types
from vlc_jax.models import heads, labclip, layers, pooling
from vlc_jax.types import ImageFeatures, Scalar, TextFeatures


class Pooled(heads.Head):
    """The dot product of pooled features, and scores of pooled patches beside it or in its place.

    rule: a row of `pooling.RULES`.
    scoring: global (dot product of pooled features; pooled patches are only `local` in training,
      and the model is saved and exported as CLIP) | local (pooled patches).
    mapping: none | linear: matrices for patches and for queries, of `width`, which start as the
      identity; only with scoring=local.
    has_class_token: whether the tower's first token is a class token, which is dropped.
    has_start_token: whether texts begin with a start token (CLIP's), which is no query.
    chunk: images and texts at a time on each device, for memory; changes no result.

    Raises UsageError for scoring=local of rule fsc, whose scores depend on the logit scale, and for
    a mapping with scoring=global.
    """

    rule: Literal["c2lip", "fsc", "maxsim", "pacl", "sparc"]
    scoring: Literal["global", "local"] = "local"
    mapping: Literal["none", "linear"] = "none"
    width: int | None = None
    has_class_token: bool = True
    has_start_token: bool = False
    chunk: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule == "fsc" and self.scoring == "local":
            raise errors.UsageError(
                "the rule fsc is a loss of FSC-CLIP, which is evaluated by its pooled features: "
                "set config.model.head.scoring='global'"
            )
        if self.mapping == "linear" and self.scoring == "global":
            raise errors.UsageError(
                "mapping='linear' changes scores of pooled patches, and scoring='global' scores by "
                "pooled features: set config.model.head.scoring='local', or mapping='none'"
            )

    def setup(self) -> None:
        if self.mapping == "linear":
            self.patch_map = labclip.identity(self.width)
            self.query_map = labclip.identity(self.width)

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Projected tokens of the image tower, and of the text tower if they are the queries; not
        normalised."""
        text = "projected" if self._row.query == "tokens" else "none"
        return (
            types.FeatureRequest("projected", is_unit=False),
            types.FeatureRequest(text, is_unit=False),
        )

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """Both with scoring=global; else that of texts whose query is the pooled text."""
        is_global = self.scoring == "global"
        return is_global, is_global or self._row.query == "pooled"

    @property
    def is_dot(self) -> bool:
        """True with scoring=global."""
        return self.scoring == "global"

    @property
    def _row(self) -> pooling.Rule:
        return pooling.RULES[self.rule]

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`pooled`, of unit length; `tokens`: the patches, where scores read them."""
        pooled = layers.l2_normalize(features.pooled)
        if self.is_dot and not is_training:
            return ImageFeatures(pooled)
        patches = features.tokens[:, int(self.has_class_token) :]
        if self.mapping == "linear":
            patches = self.patch_map(patches)
        # after the mapping, which changes lengths
        if self._row.has_unit_patches:
            patches = layers.l2_normalize(patches)
        return ImageFeatures(pooled, patches)

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled` and `tokens` of unit length; `mask`: tokens that are queries."""
        query_map = self.query_map if self.mapping == "linear" else lambda x: x
        if self._row.query == "pooled":
            pooled = layers.l2_normalize(query_map(features.pooled))
            return features._replace(pooled=pooled)
        pooled = layers.l2_normalize(features.pooled)
        if self.is_dot and not is_training:
            return TextFeatures(pooled)
        tokens = layers.l2_normalize(query_map(features.tokens))
        is_query = jnp.arange(tokens.shape[1]) >= int(self.has_start_token)
        return features._replace(pooled=pooled, tokens=tokens, mask=features.mask & is_query[None])

    def local(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures], logit_scale: Float[Array, ""]
    ) -> heads.Scores:
        """Scores of pooled patches of each kind of texts in a training batch."""
        return {
            kind: (self._all(image, text, logit_scale), self._own(image, text, logit_scale))
            for kind, text in texts.items()
        }

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Scores of every image with every text."""
        if self.is_dot:
            return heads.dot(image.pooled, text.pooled)
        return self._all(image, text)

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Scores of image i with its own k texts."""
        if self.is_dot:
            return heads.dot_options(image.pooled, text.pooled)
        return self._own(image, text)

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """weights of the pooled text, or groups of its tokens; {} with scoring=global."""
        if self.is_dot:
            return {}
        weights = pooling.weights(self._row, image.tokens, self._queries(text)[0])
        return {"weights": weights[..., 0]} if self._row.query == "pooled" else {"groups": weights}

    def _queries(
        self, text: TextFeatures
    ) -> tuple[Float[Array, "texts length embed"], Bool[Array, "texts length"]]:
        if self._row.query == "tokens":
            return text.tokens, text.mask
        return text.pooled[:, None], jnp.ones((len(text.pooled), 1), bool)

    def _all(
        self, image: ImageFeatures, text: TextFeatures, logit_scale: Scalar = 1.0
    ) -> Float[Array, "images texts"]:
        scale = jnp.asarray(logit_scale, jnp.float32)
        return heads.map_pairs(self._score, image.tokens, self._queries(text), scale, self.chunk)

    def _own(
        self, image: ImageFeatures, text: TextFeatures, logit_scale: Scalar = 1.0
    ) -> Float[Array, "images options"]:
        scale = jnp.asarray(logit_scale, jnp.float32)
        return heads.map_options(self._score, image.tokens, self._queries(text), scale, self.chunk)

    def _score(self, patches: Array, texts: tuple[Array, Array], scale: Scalar) -> Array:
        return pooling.scores(self._row, patches, *texts, scale)
