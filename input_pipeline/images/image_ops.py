"""Image decoding and transforms: bytes, files or arrays -> uint8 RGB pixels of one size.

Pillow decodes and resamples (antialiased), as in open_clip and the Hugging Face image processors,
so pixels agree with the published checkpoints. Normalisation happens on the device; only its
constants are here.
"""

import contextlib
import errno
import io
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from vlc_jax.input_pipeline.images.packed_images import read_packed
from vlc_jax.input_pipeline.record import (
    Crop,
    DataError,
    ImageLike,
    ImageQuestion,
    PackedImage,
    ShuffledImage,
)

NORMALISATIONS: dict[str, tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    # name -> (mean, standard deviation) per RGB channel, for pixels scaled to [0, 1]
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "siglip": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
SHUFFLES = {"rows_4": (4, 1), "cols_4": (1, 4), "patches_9": (3, 3)}  # name -> rows, columns
CROPS = ("centre", "random_resized", "none", "pad")
INTERPOLATIONS = {
    "bicubic": Image.Resampling.BICUBIC,  # CLIP, SigLIP
    "bilinear": Image.Resampling.BILINEAR,  # SigLIP 2, by its authors and by Hugging Face
}
# Pillow's own warning level: 1/4 GB of RGBA; more is a decompression bomb
MAX_PIXELS = 89_478_485
# of an encoded image: an uncompressed TIFF of that many pixels with 4 channels of 16 bits
MAX_BYTES = 8 * MAX_PIXELS

_ORIENTATION_TAG = 0x0112
_ORIENTATIONS = {  # EXIF value -> the transposition that turns the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Exceptions of Pillow's decoders on damaged input, from truncated and flipped bytes of every format
# and from its issue tracker. The bytes are in memory, so an OSError here concerns the data and not
# the disk.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    Image.DecompressionBombError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    # where warnings are errors
    Warning,
    struct.error,
    zlib.error,
)


def read_bytes(path: Path) -> bytes:
    """Reads an image file. Raises DataError for a missing or unreadable file.

    Other OSErrors (a failing disk or network) do not concern this file and are not converted.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            # of the open file: saves a request to storage
            status = os.fstat(file.fileno())
            # such as /dev/zero, which has no end, or a pipe that nobody writes to
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"image file {path} is a device or a pipe")
            if status.st_size > MAX_BYTES:
                raise DataError(
                    f"image file {path} has {status.st_size:,} bytes; more than {MAX_BYTES:,} are "
                    "taken for another kind of file"
                )
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"image file {path} does not exist") from None
    except ValueError:
        raise DataError(f"image file {str(path)!r:.80} cannot exist: its name is no text") from None
    except (IsADirectoryError, PermissionError) as error:
        raise DataError(f"image file {path} cannot be read: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = f"{str(path)[:80]}... of {len(str(path)):,} letters"
            raise DataError(f"image file {name} cannot exist: {error.strerror}") from None
        raise


def _open_at_once(path: str, flags: int) -> int:
    """Opener that does not wait for the writer of a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_rgb(image: ImageLike | Image.Image) -> Image.Image:
    """A fully decoded, upright RGB picture. Raises DataError, naming the file if there is one.

    Colour follows Pillow's `convert("RGB")`: grey is repeated, palettes are looked up, CMYK is
    converted without a colour profile, and an alpha channel is dropped, not composited (as in
    open_clip and Hugging Face). 16-bit grey keeps its upper 8 bits; an animation gives its first
    frame. EXIF orientation is applied (the reference libraries ignore it).
    """
    if isinstance(image, np.ndarray):
        return Image.fromarray(_check_pixels(image))
    if isinstance(image, Image.Image):
        return _upright(image, _to_rgb(image, "a picture"))
    if isinstance(image, Crop):
        left, top, right, bottom = image.box
        if not (left < right and top < bottom and (right - left) * (bottom - top) <= MAX_PIXELS):
            raise DataError(
                f"no crop of {image.image} to {image.box} has 1 to {MAX_PIXELS:,} pixels"
            )
        return open_rgb(image.image).crop(image.box)
    if isinstance(image, ImageQuestion):
        return open_rgb(image.image)
    if isinstance(image, ShuffledImage):
        return Image.fromarray(shuffle(decode(image.image), image))
    if isinstance(image, PackedImage):
        name, data = f"image {image.row} of {image.file}", read_packed(image)
    elif isinstance(image, Path):
        name, data = f"image file {image}", read_bytes(image)
    elif isinstance(image, bytes):
        name, data = f"an image of {len(image)} bytes", image
    else:
        raise DataError(f"an image is bytes, a Path or a uint8 array; got {type(image).__name__}")
    if not data:
        raise DataError(f"{name} is empty")
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:
            raise DataError(
                f"{name} has {picture.width} x {picture.height} pixels; more than {MAX_PIXELS:,} "
                "is taken for a decompression bomb: shrink it first"
            )
        picture.load()
        return _upright(picture, _to_rgb(picture, name))
    except _DAMAGE as error:
        # its text is a memory address
        if isinstance(error, Image.UnidentifiedImageError):
            raise DataError(f"{name} is not an image Pillow knows ({', '.join(FORMATS)})") from None
        raise DataError(f"{name} cannot be decoded: {error or type(error).__name__}") from error


def decode(image: ImageLike) -> np.ndarray:
    """Decodes an image to uint8 pixels (height, width, 3), RGB, upright. See `open_rgb`."""
    if isinstance(image, np.ndarray):
        return _check_pixels(image)
    return np.asarray(open_rgb(image))


def shuffle(pixels: np.ndarray, how: ShuffledImage) -> np.ndarray:
    """Pixels (height, width, 3) with their parts in the order `how.order`.

    Remaining rows below and columns at the right get the mean colour of CLIP's data, 0 after its
    normalisation, as in ARO's code, whose fold leaves them empty: at 224 pixels, the parts of
    patches_9 have side 74, and 2 rows and 2 columns remain.
    """
    rows, columns = SHUFFLES[how.shuffle]
    if sorted(how.order) != list(range(rows * columns)):
        raise DataError(f"{how.shuffle} has {rows * columns} parts; got the order {how.order}")
    height, width = pixels.shape[0] // rows, pixels.shape[1] // columns
    shuffled = np.empty_like(pixels)
    shuffled[:] = np.round(255 * np.array(NORMALISATIONS["clip"][0])).astype(np.uint8)
    for target, part in enumerate(how.order):
        (top, left), (y, x) = (
            np.array(divmod(k, columns)) * (height, width) for k in (target, part)
        )
        shuffled[top : top + height, left : left + width] = pixels[y : y + height, x : x + width]
    return shuffled


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
    picture: Image.Image, size: int, interpolation: str = "bicubic"
) -> Image.Image:
    """CLIP's preprocessing: short side to `size`, then the central square.

    Equals transformers' CLIP image processor on Pillow bit for bit. (torchvision puts an odd
    remainder on the other side.)
    """
    height, width = short_side_size(picture.height, picture.width, size)
    top, left = (height - size) // 2, (width - size) // 2
    if width > size:
        # Pillow resizes the width first, then the height, and rounds to 8 bits in between: cropping
        # the sides before the second pass gives the same pixels for less work.
        picture = resize(picture, picture.height, width, interpolation)
        picture = picture.crop((left, 0, left + size, picture.height))
    return _crop(resize(picture, height, size, interpolation), 0, top, size)


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
    """Image transform: ImageLike -> uint8 (size, size, 3). An image of that size is not resampled.

    crop "centre": short side to `size`, then the central square (CLIP). "none": resized to the
    square without regard to its aspect ratio (SigLIP). "pad": `pad_to_square`, then resized
    (LLaVA). "random_resized": a random window with area share in `scale` and width / height in
    `ratio`; needs the generator.
    brightness, hue: amounts of `jitter`; need the generator, too.
    """

    size: int  # pixels
    crop: str = "centre"
    scale: tuple[float, float] = (0.9, 1.0)  # share of the area; open_clip's default
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bicubic"
    brightness: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"image size must be at least 1 pixel; got {self.size}")
        if self.crop not in CROPS:
            raise ValueError(f"crop must be one of {CROPS}; got {self.crop!r}")
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

    def __call__(self, image: ImageLike, rng: np.random.Generator | None = None) -> np.ndarray:
        """Raises DataError for an image that cannot be decoded."""
        if isinstance(image, ImageQuestion):
            return self(image.image, rng)
        # after resize and crop, as in ARO
        if isinstance(image, ShuffledImage):
            return shuffle(self(image.image, rng), image)
        has_jitter = bool(self.brightness or self.hue)
        if rng is None and (has_jitter or self.crop == "random_resized"):
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
        if self.crop == "random_resized":
            picture = random_resized_crop(open_rgb(image), size, self.scale, self.ratio, rng, how)
        elif isinstance(image, np.ndarray) and image.shape == (size, size, 3):
            return _check_pixels(image)
        elif self.crop == "centre":
            picture = resize_and_centre_crop(open_rgb(image), size, how)
        else:
            picture = open_rgb(image)
            square = pad_to_square(picture) if self.crop == "pad" else picture
            picture = resize(square, size, size, how)
        return np.asarray(picture)


def _check_pixels(image: np.ndarray) -> np.ndarray:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise DataError(
            "pixels must be uint8 of shape (height, width, 3); "
            f"got {image.dtype.name} of shape {image.shape}"
        )
    return image


def _to_rgb(picture: Image.Image, name: str) -> Image.Image:
    if picture.mode == "RGB":
        return picture
    if picture.mode == "F":
        raise DataError(f"{name} has floating point pixels, of unknown range: save 8 bits")
    # Pillow would clip everything above 255 to white
    if picture.mode.startswith("I"):
        levels = np.asarray(picture)
        if levels.min() < 0 or levels.max() > 65_535:
            raise DataError(f"{name} has grey levels outside 0..65535: save 8 or 16 bits")
        return Image.fromarray((levels >> 8).astype(np.uint8)).convert("RGB")
    # dropped like an alpha channel; Pillow warns otherwise
    picture.info.pop("transparency", None)
    return picture.convert("RGB")


def _upright(picture: Image.Image, rgb: Image.Image) -> Image.Image:
    orientation = 1
    # a damaged EXIF block does not make the pixels unusable
    with contextlib.suppress(_DAMAGE):
        orientation = picture.getexif().get(_ORIENTATION_TAG, 1)
    operation = _ORIENTATIONS.get(orientation)
    return rgb if operation is None else rgb.transpose(operation)


def _crop(picture: Image.Image, left: int, top: int, size: int) -> Image.Image:
    if (left, top) == (0, 0) and picture.size == (size, size):
        return picture
    return picture.crop((left, top, left + size, top + size))
