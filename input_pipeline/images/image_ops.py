"""Image decoding: bytes, files or arrays -> uint8 RGB pixels.

Pillow decodes, as in open_clip and the Hugging Face image processors, so pixels agree with the
published checkpoints. Normalisation happens on the device; only its constants are here.
"""

import contextlib
import errno
import functools
import io
import logging
import math
import os
import stat
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from vlc_jax.input_pipeline.images import parquet_file
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
# Pillow's own warning level: 1/4 GB of RGBA; more is a decompression bomb
MAX_PIXELS = 89_478_485
# of an encoded image: an uncompressed TIFF of that many pixels with 4 channels of 16 bits
MAX_BYTES = 8 * MAX_PIXELS

_ORIENTATION_TAG = 0x0112
# of TIFF
_BITS_TAG, _PHOTOMETRIC_TAG, _WHITE_IS_ZERO = 258, 262, 0
# of 65,536: pixels below are of 8, 10 or 12 bits in 16, up to 16 of 255 after a PPM's rounding
_DARK = 17 * 256
_WITH_BLACK: set[Path | None] = set()  # folders whose boxes were mentioned
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
    ArithmeticError, AttributeError, EOFError, Image.DecompressionBombError, LookupError, OSError,
    RuntimeError, SyntaxError, TypeError, ValueError, struct.error, zlib.error,
    Warning,  # where warnings are errors
)  # fmt: skip


@functools.cache
def suffixes() -> tuple[str, ...]:
    """Suffixes of the names of image files that can be read: ".jpg", ".jpeg", ..."""
    formats = Image.registered_extensions().items()
    return tuple(sorted(suffix for suffix, name in formats if name in FORMATS))


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
    except FileNotFoundError:
        raise DataError(f"image file {path} does not exist") from None
    except NotADirectoryError:
        # a device is no regular file
        file = next((parent for parent in path.parents if parent.is_file()), path.parent)
        raise DataError(
            f"image file {path} does not exist: {file} is a file, where a folder is needed (a "
            "symbolic link that a copy wrote as text?)"
        ) from None
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


def open_rgb(image: ImageLike | Image.Image, least: float = 0) -> Image.Image:
    """A fully decoded, upright RGB picture. Raises DataError, naming the file if there is one.

    Colour follows Pillow's `convert("RGB")`: grey is repeated, palettes are looked up, CMYK is
    converted without a colour profile, and an alpha channel is dropped, not composited (as in
    open_clip and Hugging Face). 16 bits keep their upper 8; files that hold 8 or 12 bits in 16,
    which would be black, are refused. An animation gives its first frame. EXIF orientation is
    applied (the reference libraries ignore it), to a Crop after its box is cut.
    least: a JPEG is decoded at 1/2, 1/4 or 1/8 of its size (libjpeg's scaled DCT) while the
      geometric mean of its sides is at least this; 0: always whole.
    """
    stored, turn = _stored(image, least)
    return stored if turn is None else stored.transpose(turn)


def _stored(
    image: ImageLike | Image.Image, least: float = 0
) -> tuple[Image.Image, Image.Transpose | None]:
    """RGB pixels as the file stores them, in which boxes are given, and what turns them upright."""
    if isinstance(image, np.ndarray):
        return Image.fromarray(check_pixels(image)), None
    if isinstance(image, Image.Image):
        return _to_rgb(image, "a picture"), _turn(image)
    if isinstance(image, Crop):
        stored, turn = _stored(image.image)
        return _crop(stored, image), turn
    if isinstance(image, ImageQuestion):
        return _stored(image.image)
    if isinstance(image, ShuffledImage):
        return Image.fromarray(shuffle(decode(image.image), image)), None
    if isinstance(image, Path) and image.suffix == ".npy":
        return _opencv_image(image), None
    name = _name(image)
    data = image
    if isinstance(image, Path | PackedImage):
        is_packed = isinstance(image, PackedImage)
        data = parquet_file.image_bytes(image) if is_packed else read_bytes(image)
    if not data:
        raise DataError(f"{name} is empty")
    try:
        picture = Image.open(io.BytesIO(data), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:
            raise DataError(
                f"{name} has {picture.width} x {picture.height} pixels; more than {MAX_PIXELS:,} "
                "is taken for a decompression bomb: shrink it first"
            )
        if least and (factor := int(math.sqrt(picture.width * picture.height) / least)) > 1:
            picture.draft(None, tuple(max(1, side // factor) for side in picture.size))
        return _to_rgb(picture, name), _turn(picture)
    except _DAMAGE as error:
        # its text is a memory address
        if isinstance(error, Image.UnidentifiedImageError):
            raise DataError(f"{name} is not an image Pillow knows ({', '.join(FORMATS)})") from None
        raise DataError(f"{name} cannot be decoded: {error or type(error).__name__}") from error


def _name(image: ImageLike) -> str:
    if isinstance(image, PackedImage):
        return f"image {image.row} of {image.file}"
    if isinstance(image, Path):
        return f"image file {image}"
    if isinstance(image, bytes):
        return f"an image of {len(image)} bytes"
    raise DataError(f"an image is bytes, a Path or a uint8 array; got {type(image).__name__}")


def _crop(stored: Image.Image, crop: Crop) -> Image.Image:
    """The box of a picture as stored, black beyond its border as in the benchmarks' code, which is
    logged once per folder. Raises DataError for a box without pixels of the picture."""
    left, top, right, bottom = crop.box
    inside = max(left, 0), max(top, 0), min(right, stored.width), min(bottom, stored.height)
    has_pixels = inside[0] < inside[2] and inside[1] < inside[3]
    if not has_pixels or (right - left) * (bottom - top) > MAX_PIXELS:
        raise DataError(
            f"no crop of {_name(crop.image)} to {crop.box} has 1 to {MAX_PIXELS:,} pixels, some of "
            f"them of the {stored.width} x {stored.height} of the image"
        )
    folder = crop.image.parent if isinstance(crop.image, Path) else None
    if inside != crop.box and folder not in _WITH_BLACK:
        _WITH_BLACK.add(folder)
        logging.getLogger(__name__).warning(
            "the box %s of %s reaches beyond its %d x %d pixels and is black there, like other "
            "such boxes of this folder",
            crop.box,
            _name(crop.image),
            *stored.size,
        )
    return stored.crop(crop.box)


def _opencv_image(path: Path) -> Image.Image:
    """A picture from a NumPy file of uint8 pixels in OpenCV's channel order, BGR (EqBen's)."""
    try:
        # a pickle from the internet could run code
        pixels = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    except _DAMAGE as error:
        raise DataError(f"{path} is no NumPy file of pixels: {error}") from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[2:] != (3,):
        raise DataError(f"{path} has no uint8 pixels (height, width, 3)")
    return Image.fromarray(np.ascontiguousarray(pixels[:, :, ::-1]))


def decode(image: ImageLike) -> np.ndarray:
    """Decodes an image to uint8 pixels (height, width, 3), RGB, upright. See `open_rgb`."""
    if isinstance(image, np.ndarray):
        return check_pixels(image)
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


def check_pixels(image: np.ndarray) -> np.ndarray:
    """The pixels. Raises DataError unless they are uint8 (height, width, 3)."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise DataError(
            "pixels must be uint8 of shape (height, width, 3); "
            f"got {image.dtype.name} of shape {image.shape}"
        )
    return image


def _to_rgb(picture: Image.Image, name: str) -> Image.Image:
    # of the file: forgotten once it is decoded
    keeps_upper_bits = _keeps_upper_bits(picture, name)
    picture.load()
    if picture.mode == "F":
        raise DataError(f"{name} has floating point pixels, of unknown range: save 8 bits")
    # Pillow would clip everything above 255 to white
    is_deep_grey = picture.mode.startswith("I")
    if is_deep_grey:
        levels = np.asarray(picture).astype(np.int64)
        tags = getattr(picture, "tag_v2", {})
        # packed 12 bits are not scaled to 16
        levels <<= 4 * (tags.get(_BITS_TAG) == (12,))
        if levels.min() < 0 or levels.max() > 65_535:
            raise DataError(f"{name} has grey levels outside 0..65535: save 8 or 16 bits")
        highest = levels.max()
    elif keeps_upper_bits:
        bands = np.atleast_2d(picture.getextrema())
        highest = 256 * bands[:3, 1].max() + 255
    if (is_deep_grey or keeps_upper_bits) and 0 < highest < _DARK:
        raise DataError(
            f"{name} has 16 or 32 bits and no {'grey ' * is_deep_grey}level above {highest}, which "
            "would be black: save it with 8 bits"
        )
    if is_deep_grey:
        # Pillow inverts only 8 bits
        if tags.get(_PHOTOMETRIC_TAG) == _WHITE_IS_ZERO:
            levels = 65_535 - levels
        return Image.fromarray((levels >> 8).astype(np.uint8)).convert("RGB")
    if picture.mode == "RGB":
        return picture
    # dropped like an alpha channel; Pillow warns otherwise
    picture.info.pop("transparency", None)
    return picture.convert("RGB")


def _keeps_upper_bits(picture: Image.Image, name: str) -> bool:
    """True if Pillow takes the upper 8 of more bits of the channels of a picture to be decoded."""
    tiles = picture.tile if picture.format in ("PNG", "TIFF", "PPM") else ()
    for *_, args in tiles:
        is_ppm = picture.format == "PPM" and isinstance(args, tuple) and args[1] > 255
        if is_ppm or ";16" in str(args):
            return True
        bits = picture.tag_v2.get(_BITS_TAG, (8,))[0] if picture.format == "TIFF" else 8
        if bits > 8 and picture.mode[0] not in "IF":
            raise DataError(f"{name} has planes of {bits} bits, which Pillow misreads: save 8")
    return False


def _turn(picture: Image.Image) -> Image.Transpose | None:
    """The transpose that turns a picture upright by its EXIF orientation."""
    # a damaged EXIF block does not make the pixels unusable
    with contextlib.suppress(_DAMAGE):
        return _ORIENTATIONS.get(picture.getexif().get(_ORIENTATION_TAG, 1))
    return None
