"""Pictures show what the scene says, and the same bytes everywhere."""

import os
import subprocess
import sys

import numpy as np
import pytest

from vlc_jax.input_pipeline.scenes import draw, sample, shapes
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.world import RGB, Scene, SceneObject
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

MINI = worlds.named("scenes-mini")

# sha256 over pixels, captions and id of the first 100 records of split "train". Other pixels are
# another world: raise its version, and with it every published number. Other captions are another
# style, whose hash is in the fingerprint of the source.
GOLDEN = {
    "scenes-hues": "8b9fe920466f41bfff4ec9c9337d527db33aa16fd55fd54f5946d295ced7642c",
    "scenes-synonyms": "4698992ce72f1a2c277c2e0ca09fc5fe7d9836d2881ca0726bc1a005179f6a07",
    "scenes-mini": "3ada6b2169b5a4297d2870e717530a159c0ef51630b3a4d2a0f6d1f3b1c49b3b",
    "scenes-64": "4d3f1aa64080ad8719d4b8c10e34cca7d1758fb2fe6972d46c934f559858808e",
}
DIGEST = """
import hashlib, sys
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource
for name in sys.argv[1:]:
    source = ScenesSource(name)
    digest = hashlib.sha256()
    for record in (source[i] for i in range(100)):
        digest.update(record.image.tobytes())
        digest.update("|".join([record.id, *record.captions]).encode())
    print(digest.hexdigest())
"""


def test_another_process_draws_the_published_bytes():
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    command = [sys.executable, "-c", DIGEST, *GOLDEN]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == [*GOLDEN.values()]


def test_order_of_access_and_count_do_not_matter():
    source, longer = ScenesSource(count=50), ScenesSource(count=5000)
    backwards = [longer[i] for i in reversed(range(50))][::-1]
    for i, record in enumerate(backwards):
        assert record.id == source[i].id
        assert record.captions == source[i].captions
        np.testing.assert_array_equal(record.image, source[i].image)


@pytest.mark.parametrize("name", sorted(worlds.WORLDS))
def test_pictures_have_the_canvas_size_and_a_light_background(name):
    world = worlds.named(name)
    for i in range(50):
        scene = sample.sample_scene(world, "train", i)
        image = draw.draw(scene)
        assert image.dtype == np.uint8
        assert image.shape == (world.canvas, world.canvas, 3)
        assert image.flags.c_contiguous
        outside = np.ones((world.canvas, world.canvas), bool)
        for obj in scene.objects:
            outside[obj.y : obj.y + obj.pixels, obj.x : obj.x + obj.pixels] = False
        pixels = image[outside].astype(int)
        deviation = (pixels - scene.background)[pixels.max(axis=-1) < 255]
        assert abs(deviation).max() <= 24
        np.testing.assert_array_equal(deviation[:, 0], deviation[:, 1])  # grey noise
        assert deviation[:, 0].std() == pytest.approx(8, abs=0.8)


def one(shape, colour="red", texture="plain", jitter=(0, 0, 0), pixels=15):
    obj = SceneObject(shape, colour, "big", texture, 12, 9, pixels, jitter)
    return Scene(MINI, (obj,), (200, 210, 220), 7)


def test_an_object_has_its_colour_shifted_by_its_jitter():
    image = draw.draw(one("square", "blue", jitter=(3, -4, 90)))
    assert image[9 + 7, 12 + 7].tolist() == [RGB["blue"][0] + 3, RGB["blue"][1] - 4, 255]


def test_scenes_that_differ_in_places_share_the_background():
    scene = sample.sample_scene(MINI, "train", 1, 2)
    other = worlds.reverse_relation(scene, 0, 1)
    first, second = draw.draw(scene), draw.draw(other)
    outside = np.ones((40, 40), bool)
    for obj in scene.objects + other.objects:
        outside[obj.y : obj.y + obj.pixels, obj.x : obj.x + obj.pixels] = False
    np.testing.assert_array_equal(first[outside], second[outside])
    assert (first != second).any()


def test_a_later_object_covers_an_earlier_one():
    rear = SceneObject("square", "red", "big", "plain", 10, 10, 15, (0, 0, 0))
    front = rear._replace(colour="blue", x=16)
    image = draw.draw(Scene(MINI, (rear, front), (200, 200, 200), 1))
    assert image[17, 20].tolist() == list(RGB["blue"])
    image = draw.draw(Scene(MINI, (front, rear), (200, 200, 200), 1))
    assert image[17, 20].tolist() == list(RGB["red"])


@pytest.mark.parametrize("pixels", [10, 14, 15, 24])
def test_any_two_outlines_differ_clearly_at_every_size(pixels):
    masks = {shape: shapes.mask(shape, pixels) / shapes.OPAQUE for shape in shapes.OUTLINES}
    for shape, mask in masks.items():
        assert 0.15 <= mask.mean() <= 1.0, shape
        rivals = MINI.shapes if shape in MINI.shapes else shapes.OUTLINES
        nearest = min(abs(mask - masks[name]).mean() for name in rivals if name != shape)
        assert nearest >= (0.18 if shape in MINI.shapes else 0.14), shape


def test_masks_cannot_be_changed_by_accident():
    with pytest.raises(ValueError, match="read-only"):
        shapes.mask("circle", 10)[0, 0] = 1


@pytest.mark.parametrize("colour", sorted(RGB))
def test_textures_add_a_second_tone(colour):
    plain, striped, dotted = (draw.draw(one("square", colour, t)) for t in shapes.TEXTURES)
    for image in (striped, dotted):
        changed = abs(image.astype(int) - plain).sum(axis=-1) > 60
        assert 0.1 < changed[9:24, 12:27].mean() < 0.7
        assert not changed[:9].any()
