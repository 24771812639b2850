"""What evaluation keeps of the maps of a head, with a model of one line whose patches are known."""

from pathlib import Path

import numpy as np
import pytest

from vlc_jax.evaluators import Scorer, patch_maps
from vlc_jax.input_pipeline.benchmarks import Case
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer
from vlc_jax.report import patch_maps as report_maps
from vlc_jax.types import ImageFeatures, TextFeatures

SIDE, SIZE = 4, 32  # patches, pixels
COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255), "green": (0, 255, 0)}
TOKENIZER = WordTokenizer(6, (*COLOURS, "left", "a"))


def square(colours, height=SIZE, width=SIZE):
    """A black picture with a patch of each colour at (row, column) of its central square."""
    pixels = np.zeros((height, width, 3), np.uint8)
    patch, left = height // SIDE, (width - height) // 2
    for name, (row, column) in colours.items():
        x = left + column * patch
        pixels[row * patch : (row + 1) * patch, x : x + patch] = COLOURS[name]
    return pixels


def scorer(transform):
    """A patch is its mean colour, a text and its tokens are the colours that they name."""

    def embed_images(images):
        pixels = np.stack([transform(image) for image in images]) / 255.0
        patches = pixels.reshape(len(images), SIDE, SIZE // SIDE, SIDE, SIZE // SIDE, 3)
        tokens = patches.mean((2, 4)).reshape(len(images), SIDE**2, 3)
        return ImageFeatures(tokens.mean(1), tokens)

    def embed_texts(texts):
        names = {index: name for name, index in TOKENIZER.vocabulary().items()}
        words = [[names.get(i, "") for i in row] for row in TOKENIZER(texts)]
        tokens = np.array([[COLOURS.get(word, (0, 0, 0)) for word in row] for row in words]) / 255
        return TextFeatures(tokens.sum(1), tokens)

    return Scorer(embed_images, embed_texts, None, None)


def groups(image, text):
    return {"groups": np.einsum("npe,nte->npt", image.tokens, text.tokens)}


def weights(image, text):
    return {"weights": np.einsum("npe,ne->np", image.tokens, text.pooled)}


def write(file, case, found, *, tokenizer=TOKENIZER, is_writer=True):
    transform = ImageTransform(SIZE)
    cases = {file: case, file.with_name("without captions.npz"): Case("b", case.images, ())}
    patch_maps.write(cases, 7, scorer(transform), found, transform, tokenizer, is_writer)


@pytest.mark.parametrize("shape", [(SIZE, SIZE), (SIZE, 3 * SIZE), (2 * SIZE, 5 * SIZE)])
def test_the_maximum_lies_on_the_pixels_that_the_text_names(tmp_path, shape):
    first, second = {"red": (0, 3), "blue": (2, 1)}, {"red": (3, 0), "blue": (1, 1)}
    images = tuple(square(colours, *shape) for colours in (first, second))
    write(tmp_path / "a.npz", Case("a", images, ("red", "a blue")), weights)
    found = report_maps.read(tmp_path / "a.npz", 7)
    assert found.captions == ["red", "a blue"]
    for image, colours in enumerate((first, second)):
        for caption, name in enumerate(colours):
            heat = found.over_image(found.values[image, caption])
            assert np.unravel_index(heat.argmax(), heat.shape) == colours[name]
            patch = SIZE // SIDE
            row, column = (patch * x + patch // 2 for x in colours[name])
            np.testing.assert_allclose(found.pixels[image, row, column], COLOURS[name], atol=2)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_each_column_has_the_label_of_its_token(tmp_path):
    case = Case("a", (square({"green": (1, 2)}),), ("a green", "red"), meta={"positive": "green a"})
    write(tmp_path / "a.npz", case, groups)
    found = report_maps.read(tmp_path / "a.npz", 7)
    assert found.tokens.tolist() == [["a", "green", "(end)"], ["red", "(end)", ""],
                                     ["green", "a", "(end)"]]  # fmt: skip
    assert found.values.shape == (1, 3, SIDE**2, 3)  # padding is left out
    assert found.values[0].sum(1).tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_the_columns_of_marked_words_have_the_words_as_labels(tmp_path):
    marking = FunctionalWordTokenizer(TOKENIZER, ["not", "left"])
    columns = [0, -2, 1, 2, 3, 4]  # a column of its own in front of the second token

    def similarity(image, text):
        return {"similarity": groups(image, text)["groups"], "columns": np.array([columns])}

    case = Case("a", (square({}),), ("red left blue",))
    write(tmp_path / "a.npz", case, similarity, tokenizer=marking)
    found = report_maps.read(tmp_path / "a.npz", 7)
    assert found.tokens.tolist() == [["red", "left", "left", "blue", "(end)"]]
    assert found.is_word.tolist() == [[False, True, False, False, False]]


def test_nothing_is_written_for_a_head_without_maps_or_by_other_processes(tmp_path):
    case = Case("a", (square({}),), ("red",))
    write(tmp_path / "a.npz", case, lambda image, text: {})
    write(tmp_path / "a.npz", case, weights, is_writer=False)
    assert list(Path(tmp_path).iterdir()) == []
