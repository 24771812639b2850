"""Maps of examples: files as evaluation leaves them, and what the page makes of them."""

import base64
import dataclasses
import io
import re

import numpy as np
import pytest
from PIL import Image

from tests.report.conftest import result, write_examples, write_json
from tests.report.pages import assert_alone, figure_size
from vlc_jax import report
from vlc_jax.input_pipeline.case import maps_file
from vlc_jax.report import examples, patch_maps, read_workdir
from vlc_jax.report.read_workdir import Example

NAME, STEP, SIDE, LENGTH = "scenes_swap", 512, 3, 4
KINDS = {"weights": (), "groups": (LENGTH,), "similarity": (LENGTH,)}


def write_maps(file, kind, captions, *, images=1, size=40, patches=SIDE**2, step=STEP):
    """Random values, `captions` of LENGTH tokens each."""
    rng = np.random.default_rng(0)
    file.parent.mkdir(exist_ok=True)
    arrays = {
        "step": np.array(step),
        "pixels": rng.integers(0, 255, (images, size, size, 3)).astype(np.uint8),
        "captions": np.array(captions),
        kind: rng.random((images, len(captions), patches, *KINDS[kind])).astype(np.float16),
    }
    if KINDS[kind]:
        tokens = [[*(f"{i}{k}" for k in range(LENGTH - 1)), "(end)"] for i in range(len(captions))]
        arrays |= {"tokens": np.array(tokens), "is_word": np.zeros((len(captions), LENGTH), bool)}
    np.savez_compressed(file, **arrays)
    return arrays


@pytest.fixture
def evaluated(make_workdir, blank_figures):
    """A run with the results of one benchmark and its examples."""
    path = make_workdir()
    folder = path / "evals" / NAME
    write_json(folder / f"{STEP}.json", result(NAME, STEP))
    write_examples(folder, "triplet", STEP)
    return path


def rows(path):
    return list(read_workdir.read(path).evaluations[0].examples)


def write_all(path, kind, **options):
    for example in rows(path):
        file = path / "evals" / NAME / "maps" / maps_file(example.row["id"])
        write_maps(file, kind, example.row["captions"], **options)


def pages(path):
    report.write(path)
    return (path / "report.html").read_text(), (path / "report.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_every_example_shows_its_maps_and_the_page_says_what_they_are(evaluated, kind):
    write_all(evaluated, kind)
    page, markdown = pages(evaluated)
    assert_alone(page)
    assert page.count('<div class="example ') == page.count(" with-map") == 4
    scale, words = patch_maps.KINDS[kind]
    assert words.split(":")[0] + ":" in page
    assert page.count(f'aria-label="The {scale}, from ') == 4
    files = re.findall(r"\((report/maps_.*?\.svg)\)", markdown)
    assert len(files) == 4
    for file in files:
        assert figure_size(evaluated / file)


@pytest.mark.parametrize("has_maps", [False, True])
def test_without_maps_of_its_step_the_page_has_none_of_it(evaluated, has_maps):
    if has_maps:
        write_all(evaluated, "weights", step=STEP - 1)
    page, markdown = pages(evaluated)
    assert "with-map" not in page.replace(".with-map", "")
    assert "Maps" not in page + markdown
    assert list((evaluated / "report").glob("maps_*")) == []


@pytest.mark.parametrize("damage", ["cut", "no square"])
def test_a_file_that_cannot_be_shown_is_noted(evaluated, damage):
    write_all(evaluated, "weights", **({"patches": 8} if damage == "no square" else {}))
    for file in (evaluated / "evals" / NAME / "maps").iterdir():
        if damage == "cut":
            file.write_bytes(file.read_bytes()[:100])
    page, _ = pages(evaluated)
    assert "Maps" not in page
    notes = page[page.index("Files that could not be used") :]
    assert f"evals/{NAME}/maps/val_0.npz" in notes
    assert damage == "cut" or "8 image tokens make no square" in notes


@pytest.fixture
def draw(tmp_path):
    """Draws a case: (picture, its maps, its shown captions)."""

    def _draw(kind, captions, scores, positives=(), **options):
        write_maps(tmp_path / "a.npz", kind, captions, **options)
        maps = patch_maps.read(tmp_path / "a.npz", STEP)
        row = {"id": "a", "captions": captions, "scores": scores, "positives": list(positives)}
        ((_, shown),) = examples.show([Example(row, (tmp_path / "a.png",))])
        chosen = patch_maps.choose(maps, shown)
        picture = patch_maps.draw("a", maps, chosen)
        return picture, maps, chosen

    return _draw


def brightness(picture, left, top, side):
    """Brightness at the centres of SIDE x SIDE equal parts of the topmost picture of `side` inches
    at that place.
    """
    embedded = r'base64,\s*([^"]+)"[^>]*transform="matrix\(([^)]*)\)"'
    for data, matrix in reversed(re.findall(embedded, picture.svg)):
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), float)
        width, _, _, height, *corner = (float(number) / 72 for number in matrix.split())
        box = (*corner, width * pixels.shape[1], height * pixels.shape[0])
        if np.allclose(box, (left, top, side, side), atol=0.01):
            middles = [int((k + 0.5) * len(pixels) / SIDE) for k in range(SIDE)]
            return pixels[np.ix_(middles, middles)].sum(-1)
    raise AssertionError(f"no picture at {left}, {top}")


@pytest.mark.parametrize("patches", [SIDE**2, SIDE**2 + 1])
def test_the_heaviest_patch_is_the_brightest_place_of_its_picture(draw, patches, monkeypatch):
    monkeypatch.setattr(patch_maps, "OPACITY", 1.0)  # the noise of the picture away
    picture, maps, chosen = draw("weights", ["a", "b"], [0.5, 0.2], patches=patches)
    left = patch_maps.MARGIN
    for c in chosen[0]:
        left += patch_maps.PANEL + patch_maps.GAP
        top = patch_maps.MARGIN + patch_maps.LINE + patch_maps.SPACE
        measured = brightness(picture, left, top, patch_maps.PANEL)
        values = maps.values[0, c.index][-(SIDE**2) :].reshape(SIDE, SIDE)
        assert (np.argsort(measured.ravel())[-3:] == np.argsort(values.ravel())[-3:]).all()


def test_the_correct_captions_and_the_best_wrong_one_are_chosen(draw):
    _, _, (chosen,) = draw("weights", ["a", "b", "c", "d"], [0.1, 0.5, 0.7, 0.6], [3])
    assert [(c.option.caption, c.option.is_correct) for c in chosen] == [
        ("d", True), ("a", True), ("c", False)
    ]  # fmt: skip


def test_captions_that_the_file_does_not_hold_are_left_out(draw, tmp_path):
    _, maps, _ = draw("weights", ["a", "b"], [0.5, 0.2])
    row = {"captions": ["a", "other"], "scores": [0.5, 0.9]}
    ((_, shown),) = examples.show([Example(row, (tmp_path / "a.png",))])
    assert [c.option.caption for c in patch_maps.choose(maps, shown)[0]] == ["a"]
    row = {"captions": ["x", "y"], "scores": [0.5, 0.9]}
    ((_, shown),) = examples.show([Example(row, (tmp_path / "a.png",))])
    assert patch_maps.draw("a", maps, patch_maps.choose(maps, shown)) is None


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        (["a red cat", "a blue cat"], [["red"], ["blue"]]),
        (["a red cat", "a blue tame cat"], [["red"], ["blue", "tame"]]),
        (["cat left dog", "dog left cat"], [["cat", "dog"], ["dog", "cat"]]),
        (["a cat left a dog", "a cat right a dog"], [["cat", "dog"], ["cat", "dog"]]),
        (["a cat a dog"], [["cat", "dog"]]),
    ],
)
def test_the_words_over_the_image_are_those_in_which_captions_differ(draw, captions, expected):
    rows = [[*caption.split(), "(end)"] for caption in captions]
    length = max(map(len, rows))
    tokens = np.array([row + [""] * (length - len(row)) for row in rows])
    _, maps, chosen = draw("similarity", captions, [0.5, 0.2][: len(captions)])
    is_word = (tokens == "left") | (tokens == "right")
    maps = dataclasses.replace(maps, tokens=tokens, is_word=is_word)
    again = patch_maps.choose(
        maps, [examples.ScoredImage(None, [c.option for c in chosen[0]], True)]
    )
    words = [[str(tokens[c.index, i]) for i in c.tokens] for c in again[0]]
    assert words == expected


def test_pictures_of_large_images_stay_small(draw):
    for kind in KINDS:
        scores = [0.5, 0.2, 0.1]
        picture, _, _ = draw(kind, ["a" * 300, "b", "c"], scores, size=336, patches=577)
        assert len(picture.svg) < 900_000
