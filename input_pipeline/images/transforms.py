"""Image transforms: decoded pictures -> uint8 RGB pixels of one size.

Pillow resamples (antialiased), as in open_clip and the Hugging Face image processors, so pixels
agree with the published checkpoints.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance

from vlc_jax.input_pipeline.images import naflex, native
from vlc_jax.input_pipeline.images.image_ops import (
    MAX_PIXELS,
    NORMALISATIONS,
    check_pixels,
    open_rgb,
    shuffle,
)
from vlc_jax.input_pipeline.images.perturbation import perturb
from vlc_jax.input_pipeline.record import DataError, ImageLike, ImageQuestion, ShuffledImage

CENTRES = ("centre", "centre_torchvision")
MARGIN = "centre_margin"  # ImageNet's: 224 of 256 pixels
WINDOW, FAST = "random_resized", "random_resized_fast"
RANDOM = (WINDOW, FAST, "perturbed")  # for training
NAFLEX, NATIVE = "naflex", "native"
MOSAICS = (NAFLEX, NATIVE)
OF_EVALUATION = (*CENTRES, MARGIN, "none", "pad", *MOSAICS)
CROPS = (*OF_EVALUATION, *RANDOM)
INTERPOLATIONS = {
    "bicubic": Image.Resampling.BICUBIC,  # CLIP, SigLIP
    "bilinear": Image.Resampling.BILINEAR,  # SigLIP 2, by its authors and by Hugging Face
}


def resize(
    picture: Image.Image, height: int, width: int, interpolation: str = "bicubic"
) -> Image.Image:
    """Antialiased resize; returns a picture of that size unchanged."""
    if picture.size == (width, height):
        return picture
    return picture.resize((width, height), INTERPOLATIONS[interpolation])


def short_side_size(height: int, width: int, size: int) -> tuple[int, int]:
    """Size (height, width) whose shorter side is `size`; the longer is rounded down, as torchvision
    does. Raises DataError above MAX_PIXELS: an image of 1 x 10,000 pixels, 100 bytes encoded, would
    become gigabytes.
    """
    longer = size * max(height, width) // min(height, width)
    if size * longer > MAX_PIXELS:
        raise DataError(
            f"an image of {width} x {height} pixels has {longer:,} on its longer side when its "
            f"shorter one has {size}; more than {MAX_PIXELS:,} in all are taken for an attack"
        )
    return (longer, size) if width <= height else (size, longer)


def resize_short_side(picture: Image.Image, size: int) -> Image.Image:
    """Resize that keeps the aspect ratio and makes the shorter side `size`."""
    return resize(picture, *short_side_size(picture.height, picture.width, size))


def resize_and_centre_crop(
    picture: Image.Image,
    size: int,
    interpolation: str = "bicubic",
    *,
    has_torchvision_offset: bool = False,
    shorter: int | None = None,
) -> Image.Image:
    """CLIP's preprocessing: short side to `shorter`, by default `size`, then the central square.

    Equals transformers' CLIP image processor on Pillow bit for bit, which rounds half a pixel down.
    has_torchvision_offset: it is rounded to an even number, as in torchvision, which OpenAI's code
      and open_clip use: a square one pixel further where the remainder is 3 modulo 4 (640 x 427).
    """
    height, width = short_side_size(picture.height, picture.width, shorter or size)
    halve = _half_to_even if has_torchvision_offset else _half_down
    top, left = halve(height - size), halve(width - size)
    if width > size:
        # Pillow resizes the width first, then the height, and rounds to 8 bits in between: cropping
        # the sides before the second pass gives the same pixels for less work.
        picture = resize(picture, picture.height, width, interpolation)
        picture = picture.crop((left, 0, left + size, picture.height))
    return _crop(resize(picture, height, size, interpolation), 0, top, size)


def _half_down(remainder: int) -> int:
    return remainder // 2


def _half_to_even(remainder: int) -> int:
    return round(remainder / 2)  # Python rounds .5 to even, as torchvision's center_crop


def pad_to_square(picture: Image.Image) -> Image.Image:
    """LLaVA-1.5's padding: the picture centred on a square of CLIP's mean colour, (122, 116, 104).

    The mean is truncated to integers; an odd pixel of padding goes to the bottom or right.
    """
    side = max(picture.size)
    if picture.size == (side, side):
        return picture
    if side**2 > MAX_PIXELS:
        raise DataError(
            f"an image of {picture.width} x {picture.height} pixels has {side**2:,} when padded to "
            f"a square; more than {MAX_PIXELS:,} are taken for an attack"
        )
    colour = tuple(int(255 * level) for level in NORMALISATIONS["clip"][0])
    square = Image.new("RGB", (side, side), colour)
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return square


def random_resized_crop(
    picture: Image.Image,
    size: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
    interpolation: str = "bicubic",
) -> Image.Image:
    """Random resized crop: a window with area share in `scale` and width / height in `ratio`.

    As in torchvision: area uniform, ratio log-uniform, ten tries, then the largest central window
    of an allowed ratio. The window is resized to a square; the resampling filter may look past its
    edge.
    """
    width, height = picture.size
    log_ratio = np.log(ratio)
    for _ in range(10):
        area = width * height * rng.uniform(*scale)
        aspect = np.exp(rng.uniform(*log_ratio))
        w, h = round(float(np.sqrt(area * aspect))), round(float(np.sqrt(area / aspect)))
        if 0 < w <= width and 0 < h <= height:
            left = int(rng.integers(width - w + 1))
            top = int(rng.integers(height - h + 1))
            break
    else:
        w = min(width, max(1, round(height * ratio[1])))
        h = min(height, max(1, round(width / ratio[0])))
        left, top = (width - w) // 2, (height - h) // 2
    if (w, h) == (size, size):
        return _crop(picture, left, top, size)
    box = (left, top, left + w, top + h)
    return picture.resize((size, size), INTERPOLATIONS[interpolation], box=box)


def jitter(
    picture: Image.Image, brightness: float, hue: float, rng: np.random.Generator
) -> Image.Image:
    """Colour jitter of brightness and hue in random order, as torchvision's ColorJitter.

    Brightness is multiplied by a factor in 1 +- brightness, hue is shifted by +- hue of the circle;
    an amount of 0 omits the step. Pixels are rounded to 8 bits between the steps.
    """
    # Always draw both: turning one off does not change the numbers of the other.
    factor, turn = rng.uniform(1 - brightness, 1 + brightness), rng.uniform(-hue, hue)
    steps = [lambda x: ImageEnhance.Brightness(x).enhance(factor)] if brightness else []
    steps += [lambda x: _with_hue(x, turn)] if hue else []
    for index in rng.permutation(len(steps)):
        picture = steps[index](picture)
    return picture


def _with_hue(picture: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = picture.convert("HSV").split()
    turned = (np.asarray(hue, np.int64) + round(256 * turn)) % 256
    hue = Image.fromarray(turned.astype(np.uint8))
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


@dataclass(frozen=True)
class ImageTransform:
    """Image transform: ImageLike -> uint8 of `shape`, (size, size, 3). An image of that size is not
    resampled.

    crop "centre": short side to `size`, then the central square (CLIP, as Hugging Face cuts it);
    "centre_torchvision": as torchvision cuts it (OpenAI, open_clip). "centre_margin": short side to
    8/7 of `size`, then the central square (DINOv2: 256 and 224). "none": resized to the square
    without regard to its aspect ratio (SigLIP). "pad": `pad_to_square`, then resized (LLaVA).
    "random_resized": a random window with area share in `scale` and width / height in `ratio`;
    needs the generator, as "random_resized_fast": the same of a JPEG decoded at 1/2, 1/4 or 1/8 of
    its size where windows keep `size` pixels (other values), and "perturbed": DCSM's augmentation
    (perturbation.py), then "centre".
    "naflex": with its aspect ratio to at most (size / patch_size)^2 patches, as a mosaic
    (naflex.py), (size + 1, size, 3); a mosaic of that shape is returned unchanged. "native": the
    same with patches of 16 pixels and Qwen3-VL's rule for the size (native.py).
    brightness, hue: amounts of `jitter`; need the generator, too.
    """

    size: int  # pixels
    crop: str = "centre"
    scale: tuple[float, float] = (0.9, 1.0)  # share of the area; open_clip's default
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bicubic"
    brightness: float = 0.0
    hue: float = 0.0
    patch_size: int | None = None  # pixels; of naflex

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"image size must be at least 1 pixel; got {self.size}")
        if self.crop not in CROPS:
            raise ValueError(f"crop must be one of {CROPS}; got {self.crop!r}")
        if self.crop == NAFLEX and not self.patch_size:
            raise ValueError(
                "crop naflex needs the patch_size of a tower over images of any aspect ratio; got "
                "none: take another crop for any other tower"
            )
        is_whole = self._patch and not self.size % self._patch
        if self.crop in MOSAICS and not (is_whole and self.size >= naflex.HEADER):
            raise ValueError(
                f"crop {self.crop} needs an image size of whole patches, the square with the "
                f"largest number of patches; got {self.size} pixels and patches of {self._patch}"
            )
        if self.crop == NATIVE:
            native.most_tokens(self.size)
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(
                f"interpolation must be one of {list(INTERPOLATIONS)}; got {self.interpolation!r}"
            )
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale must satisfy 0 < low <= high <= 1; got {self.scale}")
        for name, most in (("brightness", 1.0), ("hue", 0.5)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is from 0 to {most}; got {getattr(self, name)}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio must satisfy 0 < low <= high; got {self.ratio}")

    @property
    def _patch(self) -> int | None:
        return native.PATCH if self.crop == NATIVE else self.patch_size

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, 3) of the result."""
        return (self.size + (self.crop in MOSAICS), self.size, 3)

    def __call__(self, image: ImageLike, rng: np.random.Generator | None = None) -> np.ndarray:
        """Raises DataError for an image that cannot be decoded."""
        if self.crop not in MOSAICS:
            return self._cropped(image, rng)
        if isinstance(image, np.ndarray) and naflex.is_mosaic(image, self.size):
            return check_pixels(image)
        return naflex.mosaic(self._cropped(image, rng), self._patch, self.size)

    def _cropped(self, image: ImageLike, rng: np.random.Generator | None) -> np.ndarray:
        """The pixels after crop, resize and jitter, of naflex not yet a mosaic."""
        if isinstance(image, ImageQuestion):
            return self._cropped(image.image, rng)
        # after resize and crop, as in ARO
        if isinstance(image, ShuffledImage):
            return shuffle(self._cropped(image.image, rng), image)
        has_jitter = bool(self.brightness or self.hue)
        if rng is None and (has_jitter or self.crop in RANDOM):
            raise ValueError(
                "a random crop or jitter needs a generator; evaluate with crop='centre', 'none' "
                "or 'pad' and without jitter"
            )
        if not has_jitter:
            return self._sized(image, rng)
        picture = Image.fromarray(self._sized(image, rng))
        return np.asarray(jitter(picture, self.brightness, self.hue, rng))

    def _sized(self, image: ImageLike, rng: np.random.Generator | None) -> np.ndarray:
        size, how = self.size, self.interpolation
        if self.crop in (WINDOW, FAST):
            # a side of the smallest window is a picture's, by this factor
            smallest = (self.scale[0] * min(self.ratio[0], 1 / self.ratio[1])) ** 0.5
            picture = open_rgb(image, size / smallest if self.crop == FAST else 0)
            picture = random_resized_crop(picture, size, self.scale, self.ratio, rng, how)
        elif self.crop == "perturbed":
            picture = resize_and_centre_crop(perturb(open_rgb(image), rng), size, how)
        elif self.crop == NAFLEX:
            picture = open_rgb(image)
            most = (size // self.patch_size) ** 2
            height, width = naflex.best_size(picture.height, picture.width, self.patch_size, most)
            picture = resize(picture, height, width, how)
        elif self.crop == NATIVE:
            picture = open_rgb(image)
            picture = resize(picture, *native.best_size(picture.height, picture.width, size), how)
        elif isinstance(image, np.ndarray) and image.shape == (size, size, 3):
            return check_pixels(image)
        elif self.crop in CENTRES:
            is_torchvision = self.crop == "centre_torchvision"
            picture = resize_and_centre_crop(
                open_rgb(image), size, how, has_torchvision_offset=is_torchvision
            )
        elif self.crop == MARGIN:
            picture = resize_and_centre_crop(open_rgb(image), size, how, shorter=size * 8 // 7)
        else:
            picture = open_rgb(image)
            square = pad_to_square(picture) if self.crop == "pad" else picture
            picture = resize(square, size, size, how)
        return np.asarray(picture)


def _crop(picture: Image.Image, left: int, top: int, size: int) -> Image.Image:
    if (left, top) == (0, 0) and picture.size == (size, size):
        return picture
    return picture.crop((left, top, left + size, top + size))
