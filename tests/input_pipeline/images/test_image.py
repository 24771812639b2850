"""Decoding real files of every kind."""

import contextlib
import io
import os
import pathlib
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import Crop, DataError

RGB = np.random.default_rng(0).integers(0, 256, (12, 17, 3), dtype=np.uint8)


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Something like a photograph: a few colours, softly mixed."""
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encode(picture: Image.Image, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def test_lossless_colour_is_read_exactly(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encode(Image.fromarray(RGB), "PNG"))
    np.testing.assert_array_equal(image_ops.decode(path), RGB)
    np.testing.assert_array_equal(image_ops.decode(path.read_bytes()), RGB)
    np.testing.assert_array_equal(image_ops.decode(RGB), RGB)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP", "GIF", "BMP"])
def test_every_common_format_decodes_to_rgb(kind):
    colour = np.full((16, 16, 3), (200, 100, 30), np.uint8)
    decoded = image_ops.decode(encode(Image.fromarray(colour), kind))
    assert decoded.shape == (16, 16, 3)
    np.testing.assert_allclose(decoded.astype(int), colour.astype(int), atol=4)


GREY, PALETTE = RGB[..., 0], Image.fromarray(RGB).quantize(16)


LEVELS = np.arange(0, 65_536, 256, dtype=np.uint16).reshape(16, 16)


EXACT = {  # picture, options of the file, pixels of the red channel or of all
    "grey": (Image.fromarray(GREY), {}, GREY),
    "palette with transparency": (
        PALETTE,
        {"transparency": bytes(range(16))},
        np.asarray(PALETTE.convert("RGB")),
    ),
    "alpha": (Image.fromarray(np.dstack([RGB, 0 * GREY])), {}, RGB),
    "sixteen bits": (Image.fromarray(LEVELS), {}, np.arange(256).reshape(16, 16)),
    "bilevel": (Image.fromarray(GREY > 128), {}, 255 * (GREY > 128)),
}


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("name", EXACT)
def test_grey_alpha_and_sixteen_bits_become_eight_bits_of_rgb(name, kind):
    picture, options, expected = EXACT[name]
    decoded = image_ops.decode(encode(picture, kind, **options if kind == "PNG" else {}))
    pixels = expected if expected.ndim == 3 else np.repeat(expected[..., None], 3, axis=2)
    np.testing.assert_array_equal(decoded, pixels)


def test_sixteen_bits_with_white_as_zero_are_no_negative():
    exif = encode(Image.fromarray(LEVELS), "TIFF")
    entry = struct.pack("<HHIHH", 262, 3, 1, 1, 0)  # photometric interpretation: black is zero
    assert entry in exif
    inverted = image_ops.decode(exif.replace(entry, struct.pack("<HHIHH", 262, 3, 1, 0, 0)))
    np.testing.assert_array_equal(inverted, 255 - image_ops.decode(exif))


def deep_png(pixels: np.ndarray) -> bytes:
    """A PNG of 16 bits per channel: grey, grey and alpha, RGB or RGBA."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, (0, 4, 2, 6)[channels - 1], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return PNG[:8] + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + PNG[-12:]


def deep_tiff(pixels: np.ndarray, bits: int = 16) -> bytes:
    """An uncompressed TIFF of 16 bits per channel, grey, RGB or RGBA; grey of 12 bits, packed."""
    height, width, channels = pixels.shape
    data = pixels.astype("<u2").tobytes()
    if bits == 12:
        one, two = pixels.reshape(-1, 2).T
        packed = np.stack([one >> 4, (one & 15) << 4 | two >> 8, two & 255], axis=1)
        data = packed.astype(np.uint8).tobytes()
    tags = {256: width, 257: height, 259: 1, 262: 2 if channels > 1 else 1, 273: 8, 277: channels}
    tags |= {278: height, 279: len(data)} | ({338: 2} if channels == 4 else {})
    start = 8 + len(data) + len(data) % 2
    of_bits = start + 2 + 12 * (len(tags) + 1) + 4
    entries = {tag: struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()}
    value = struct.pack("<HH", bits, 0) if channels == 1 else struct.pack("<I", of_bits)
    entries[258] = struct.pack("<HHI", 258, 3, channels) + value
    folder = struct.pack("<H", len(entries)) + b"".join(entries[tag] for tag in sorted(entries))
    head = b"II*\0" + struct.pack("<I", start) + data.ljust(start - 8, b"\0")
    return head + folder + bytes(4) + struct.pack("<H", bits) * channels


def deep_ppm(pixels: np.ndarray) -> bytes:
    """A PGM or PPM of 16 bits per channel."""
    height, width, channels = pixels.shape
    head = b"P%d %d %d 65535\n" % (5 + channels // 3, width, height)
    return head + pixels.astype(">u2").tobytes()


DEEP = {deep_png: (1, 2, 3, 4), deep_tiff: (1, 3, 4), deep_ppm: (1, 3)}  # writer -> channels


@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize(("write", "channels"), [(w, c) for w, of in DEEP.items() for c in of])
def test_few_bits_in_a_file_of_sixteen_are_refused(write, channels, bits):
    colours = 1 if channels < 3 else 3
    levels = np.random.default_rng(0).integers(0, 2**16, (4, 6, channels))
    levels[..., colours:] = 65_535
    expected = np.broadcast_to(levels[..., :colours] >> 8, (4, 6, 3))
    # Pillow rounds a PPM
    np.testing.assert_allclose(image_ops.decode(write(levels)), expected, atol=1)
    levels[..., :colours] >>= 16 - bits
    with pytest.raises(DataError, match=r"no (grey )?level above .* black: save it with 8 bits"):
        image_ops.decode(write(levels))


def test_low_grey_of_32_bits_is_refused_and_black_stays_black():
    with pytest.raises(DataError, match=r"no grey level above .* black: save it with 8 bits"):
        image_ops.decode(encode(Image.fromarray(GREY.astype(np.int32)), "TIFF"))
    for kind, dtype in (("PNG", np.uint16), ("TIFF", np.int32)):
        black = encode(Image.fromarray(np.zeros((4, 4), dtype)), kind)
        assert not image_ops.decode(black).any()


def test_planes_of_sixteen_bits_are_refused_instead_of_noise():
    tiff = deep_tiff(np.full((4, 6, 3), 30_000))
    planes = tiff.replace(struct.pack("<HHII", 259, 4, 1, 1), struct.pack("<HHII", 284, 4, 1, 2))
    with pytest.raises(DataError, match="planes of 16 bits, which Pillow misreads: save 8"):
        image_ops.decode(planes)


def test_packed_twelve_bits_of_a_tiff_are_scaled():
    levels = np.arange(0, 4_096, 16).reshape(16, 16, 1)
    expected = np.broadcast_to(levels >> 4, (16, 16, 3))
    np.testing.assert_array_equal(image_ops.decode(deep_tiff(levels, bits=12)), expected)


def test_cmyk_is_converted_with_dark_ink_staying_dark():
    for colour in ((255, 0, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)):
        picture = Image.fromarray(np.full((16, 16, 3), colour, np.uint8)).convert("CMYK")
        decoded = image_ops.decode(encode(picture, "JPEG", quality=95))
        np.testing.assert_allclose(decoded.mean((0, 1)), colour, atol=6)


def test_the_first_frame_of_an_animation_is_taken():
    frames = [Image.fromarray(np.full((8, 8, 3), level, np.uint8)) for level in (10, 200)]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert image_ops.decode(data).max() < 20


STORED = {  # EXIF orientation -> how a camera that writes it has stored the upright picture
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: np.rot90(a.transpose(1, 0, 2), 2),
    8: lambda a: np.rot90(a, -1),
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
def test_exif_orientation_is_undone(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = smooth(24, 40)
    stored = np.ascontiguousarray(STORED[orientation](upright))
    options = {"quality": 98, "subsampling": 0} if kind == "JPEG" else {}
    decoded = image_ops.decode(encode(Image.fromarray(stored), kind, exif=exif, **options))
    np.testing.assert_allclose(decoded.astype(int), upright.astype(int), atol=6)


@pytest.mark.parametrize("orientation", STORED)
def test_a_box_is_cut_from_the_stored_pixels_and_then_turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    whole = encode(Image.fromarray(RGB), "PNG", exif=exif)
    part = encode(Image.fromarray(RGB[3:12, 9:15]), "PNG", exif=exif)
    np.testing.assert_array_equal(
        image_ops.decode(Crop(whole, (9, 3, 15, 12))), image_ops.decode(part)
    )


def test_a_box_beyond_the_border_is_black_and_named_once(tmp_path, caplog):
    for name in ("a.png", "b.png"):
        Image.fromarray(RGB).save(tmp_path / name)
        pixels = image_ops.decode(Crop(tmp_path / name, (10, -2, 19, 4)))
        assert not pixels[:2].any()
        assert not pixels[:, 7:].any()
        np.testing.assert_array_equal(pixels[2:, :7], RGB[:4, 10:])
    assert caplog.text.count("such boxes of this folder") == 1
    assert "a.png reaches beyond its 17 x 12 pixels" in caplog.text


def test_a_damaged_exif_block_does_not_make_pixels_unusable():
    data = encode(Image.fromarray(RGB), "PNG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    np.testing.assert_array_equal(image_ops.decode(data), RGB)


def bomb(side: int = 30_000) -> bytes:
    """A well-formed PNG header of side x side pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


JPEG = encode(Image.fromarray(smooth(60, 80)), "JPEG")


PNG = encode(Image.fromarray(smooth(60, 80)), "PNG")


UNUSABLE = {
    "truncated JPEG": JPEG[: len(JPEG) // 2],
    "truncated PNG": PNG[: len(PNG) // 2],
    "only a signature": PNG[:8],
    "empty": b"",
    "no image Pillow knows": b"<html>404 not found</html>",
    "bomb": bomb(),
    "floating point": encode(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_an_unusable_file_is_a_data_error_that_names_it(what, tmp_path):
    path = tmp_path / "holiday.jpg"
    path.write_bytes(UNUSABLE[what])
    words = {"empty": " is empty", "no image Pillow knows": " is not an image Pillow knows"}
    with pytest.raises(DataError, match=r"holiday\.jpg" + words.get(what, "")):
        image_ops.decode(path)
    with pytest.raises(DataError, match=words.get(what)):
        image_ops.decode(UNUSABLE[what])


def test_a_bomb_that_pillow_only_warns_of_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match="11000 x 11000 pixels"):
            image_ops.decode(bomb(11_000))


def test_missing_files_folders_and_wrong_arrays_are_data_errors(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        image_ops.decode(tmp_path / "no.jpg")
    with pytest.raises(DataError, match="cannot be read"):
        image_ops.decode(tmp_path)
    for pixels in (RGB / 255.0, RGB[..., 0], RGB[None], RGB[:0], RGB[..., :2]):
        with pytest.raises(DataError, match="uint8"):
            image_ops.decode(pixels)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_flipped_and_cut_bytes_raise_data_errors_alone(kind):
    data = encode(Image.fromarray(RGB), kind)
    rng = np.random.default_rng(1)
    for _ in range(150):
        broken = bytearray(data[: rng.integers(len(data) // 2, len(data) + 1)])
        for place in rng.integers(0, len(broken), 3):
            broken[place] = rng.integers(256)
        with contextlib.suppress(DataError):
            assert image_ops.decode(bytes(broken)).dtype == np.uint8


@pytest.mark.parametrize("box", [(0, 0, 10**6, 10**6), (5, 5, 5, 9), (9, 0, 2, 4), (8, 0, 9, 8)])
def test_a_crop_without_pixels_or_with_too_many_is_a_bad_record(tmp_path, box):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png to .* has 1 to"):
        image_ops.decode(Crop(tmp_path / "a.png", box))


def test_devices_and_impossible_names_are_bad_records(tmp_path):
    (tmp_path / "link.jpg").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is a device"):
        image_ops.decode(tmp_path / "link.jpg")
    (tmp_path / "val2017").write_text("../coco/val2017")  # a link, as git writes it on Windows
    for path in (tmp_path / "val2017" / "a.jpg", pathlib.Path("/dev/null/a.jpg")):
        with pytest.raises(DataError, match=r"does not exist: .* is a file, where a folder is"):
            image_ops.decode(path)
    os.mkfifo(tmp_path / "pipe.jpg")  # to open it for reading waits for a writer
    with pytest.raises(DataError, match="is a device or a pipe"):
        image_ops.decode(tmp_path / "pipe.jpg")
    with (tmp_path / "disk.jpg").open("wb") as file:
        file.truncate(10**12)  # sparse
    with pytest.raises(DataError, match=r"has 1,000,000,000,000 bytes; more than"):
        image_ops.decode(tmp_path / "disk.jpg")
    with pytest.raises(DataError, match="cannot exist: its name is no text"):
        image_ops.decode(tmp_path / "\ud800.jpg")
    with pytest.raises(DataError, match=r"of 5,\d{3} letters cannot exist: File name too long"):
        image_ops.decode(tmp_path / ("a" * 5_000))
