"""CLIP or SigLIP whose image tower also learns from a teacher, a moving average of the model: the
projections of SILC's, TIPS's and SigLIP 2's losses on crops and masked patches (losses/teacher.py).

Scores are the dot product of pooled features; the projections and the mask token are for training
alone, and an export leaves them out. Sizes are DINOv2's (Oquab et al. 2023, arXiv:2304.07193); none
of the three papers' training code is public.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import heads, layers
from vlc_jax.types import ImageFeatures


class Projection(nn.Module):
    """DINO's projection: an MLP with GELU, a bottleneck of unit length, and its cosines with
    prototypes."""

    prototypes: int
    hidden: int
    bottleneck: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "*axes embed"], *, is_mean: bool = False
    ) -> Float[Array, "... prototypes"]:
        """is_mean: of the last axis but one the mean of the cosines, linear in the unit vectors."""
        init = nn.initializers.truncated_normal(0.02)
        for index, width in enumerate((self.hidden, self.hidden, self.bottleneck)):
            x = jax.nn.gelu(x, approximate=False) if index else x
            x = layers.Dense(width, dtype=self.dtype, kernel_init=init, name=f"dense_{index}")(x)
        shape = (self.prototypes, self.bottleneck)
        units = [layers.l2_normalize(each) for each in (x, self.param("prototypes", init, shape))]
        units[0] = units[0].mean(axis=-2) if is_mean else units[0]
        # highest: a teacher divides these cosines by a temperature of .04
        return jnp.einsum(
            "...e,pe->...p", *(unit.astype(self.dtype) for unit in units), precision="highest",
            preferred_element_type=jnp.float32,
        )  # fmt: skip


class SelfDistilled(heads.Head):
    """The head of CLIP and SigLIP, with a projection of pooled features and one of patches.

    Pooled features are scaled to a mean square of 1 before their projection; patches are those
    after the tower's last norm.

    prototypes, hidden, bottleneck: widths of both projections.
    width, tower_width: of pooled features and of the image tower, a vision transformer.
    has_class_token: whether the tower's first token is a class token, which is no patch.
    """

    prototypes: int = 65_536
    hidden: int = 2048
    bottleneck: int = 256
    width: int = 512
    tower_width: int = 768
    has_class_token: bool = True
    dtype: Any = jnp.float32

    def setup(self) -> None:
        # over one prototype every distribution is the same
        if self.prototypes < 2 or self.hidden < 1 or self.bottleneck < 1:
            raise errors.UsageError(
                "the model self_distilled has 2 prototypes or more, and hidden and bottleneck from "
                f"1 on; got {self.prototypes}, {self.hidden} and {self.bottleneck}"
            )
        sizes = self.prototypes, self.hidden, self.bottleneck, self.dtype
        self.pooled_projection, self.patch_projection = Projection(*sizes), Projection(*sizes)
        self.mask_token = self.param("mask_token", nn.initializers.zeros, (self.tower_width,))

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Pooled features of unit length, and the patches of an image."""
        return types.FeatureRequest("normed"), types.POOLED_ONLY

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """Both: patches are for training alone."""
        return True, True

    @property
    def is_dot(self) -> bool:
        """True."""
        return True

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: the patches, in training."""
        if not is_training:
            return ImageFeatures(features.pooled)
        return features._replace(tokens=features.tokens[:, int(self.has_class_token) :])

    def view_logits(
        self,
        image: ImageFeatures,
        crops: Float[Array, "images crops embed"] | None = None,
        masked: Float[Array, "images _ width"] | None = None,
        masked_patches: Int[Array, "images masked"] | None = None,
    ) -> types.ViewLogits:
        """Logits over prototypes of images and of further views of them.

        crops: their pooled features.   masked: tokens of the images without their masked patches.
        masked_patches: indices of these patches; None: none is masked.
        """
        patches = image.tokens
        if masked_patches is not None:
            patches = _at(patches, masked_patches)
        if masked is not None:
            masked = _at(masked[:, int(self.has_class_token) :], masked_patches)
            masked = self.patch_projection(masked)
        return types.ViewLogits(
            image=self._pooled_logits(image.pooled),
            patches=self.patch_projection(patches),
            mean_patch=self.patch_projection(image.tokens, is_mean=True),
            crops=None if crops is None else self._pooled_logits(crops),
            masked=masked,
        )

    def _pooled_logits(self, x: Float[Array, "*axes embed"]) -> Float[Array, "*axes prototypes"]:
        # unit vectors are so small that GELU is linear in them, and the projection as well
        return self.pooled_projection(x * self.width**0.5)


def _at(
    x: Float[Array, "images patches embed"], places: Int[Array, "images masked"]
) -> Float[Array, "images masked embed"]:
    def take(x: Array, places: Array) -> Array:
        return jnp.take_along_axis(x, places[:, :, None], axis=1)

    return types.auto_sharded(take, splits_rows=True)(x, places)
