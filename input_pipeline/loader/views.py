"""Further views of training images for losses with a teacher: random crops, patches to mask."""

from dataclasses import dataclass

import numpy as np

from vlc_jax.input_pipeline.images.image_ops import open_rgb
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import ImageLike


@dataclass(frozen=True)
class Views:
    """Crops of an image and indices of its masked patches, drawn for each row of a batch.

    transform: of a crop.   crops: number per image; 0: none.
    patches: of an image.   masked: number of them that are masked; 0: none.
    """

    transform: ImageTransform
    crops: int = 0
    patches: int = 0
    masked: int = 0

    def __call__(self, image: ImageLike, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Keys of a batch, of one row: "masked_patches" (masked,) int32, ascending, and "crops"
        (crops, size, size, 3) uint8. Raises DataError for an image that cannot be decoded."""
        views = {}
        if self.masked:
            places = rng.permutation(self.patches)[: self.masked]
            views["masked_patches"] = np.sort(places).astype(np.int32)
        if self.crops:
            pixels = np.asarray(open_rgb(image))  # decoded once
            crops = [self.transform(pixels, rng) for _ in range(self.crops)]
            views["crops"] = np.stack(crops)
        return views

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Key of a batch -> shape and dtype of a row."""
        size, shapes = self.transform.size, {}
        if self.masked:
            shapes["masked_patches"] = ((self.masked,), "int32")
        if self.crops:
            shapes["crops"] = ((self.crops, size, size, 3), "uint8")
        return shapes
