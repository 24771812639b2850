"""vlc-jax calibrate and the methods behind it, of a model whose scores are known."""

import collections
import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from vlc_jax.encode.calibrated import Calibrated
from vlc_jax.errors import UsageError
from vlc_jax.tools import calibrate, command

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 40), "blue": (40, 40, 200)}


class Colours(Calibrated):
    """Scores how much of an image has the colour that a text names."""

    logit_scale, logit_bias = 10.0, None

    def __init__(self, folder=None, score_fingerprint="of these weights"):
        super().__init__(folder)
        self.score_fingerprint = score_fingerprint

    def score(self, images, texts):
        rows = [[self.one(image, text) for text in texts] for image in images]
        return np.reshape(rows, (len(images), len(texts))).astype(np.float32)

    def score_pairs(self, images, texts):
        return np.array([self.one(*pair) for pair in zip(images, texts, strict=True)], np.float32)

    def one(self, image, text):
        pixels = np.asarray(Image.open(image) if isinstance(image, Path) else image)
        index = next(k for k, name in enumerate(COLOURS) if name in text)
        return pixels[..., index].mean() / max(pixels.mean(), 1) / 3

    def save(self, folder):
        folder.mkdir()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """run(*words) -> (exit code, output) of the command on the model in the folder `run`."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "env.json").write_text("{}")
    monkeypatch.setattr(command, "model", lambda args: Colours(Path(args.model)))

    def run(*words):
        try:
            calibrate.main(["--model", str(folder), *map(str, words)])
        except SystemExit as error:
            return error.code, capsys.readouterr().err
        return 0, capsys.readouterr().out

    return run


def write(folder, images=60, noise=60, seed=0, share=0.5, name="pairs.csv"):
    """A table of pairs: noisy images of a colour, with texts of which this share is of it."""
    rng, rows = np.random.default_rng(seed), ["filepath,title,match"]
    (folder / "photos").mkdir(exist_ok=True)
    for i in range(images):
        colour = [*COLOURS][i % 3]
        pixels = rng.normal(COLOURS[colour], noise, (1, 1, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"photos/{seed}_{i}.png")
        for _ in range(4):
            is_match = rng.random() < share
            text = colour if is_match else rng.choice([c for c in COLOURS if c != colour])
            rows.append(f"photos/{seed}_{i}.png,a {text} thing,{'yes' if is_match else 0}")
    (folder / name).write_text("\n".join(rows) + "\n")
    return folder / name


def test_a_calibrated_run_gives_probabilities_and_a_page(run, tmp_path):
    code, output = run("--pairs", write(tmp_path), "--precision", "0.8")
    assert code == 0
    assert "of 60 images" in output
    assert "precision ≥ 80.0%" in output
    folder = tmp_path / "run"
    page = (folder / "calibration.html").read_text()
    assert "<svg" in page
    assert "Clopper" in page
    assert (folder / "calibration.svg").exists()
    model = Colours(folder)
    image = np.full((4, 4, 3), COLOURS["red"], np.uint8)
    (red, blue), (copy, _) = model.probability([image, image], ["a red thing", "a blue thing"])
    assert blue < 0.5 < red < 1
    assert red == copy
    assert model.probability([], ["a red thing"]).shape == (0, 1)


def test_a_shifted_set_is_said_to_be_shifted(run, tmp_path):
    run("--pairs", write(tmp_path, images=90))
    same = write(tmp_path, images=90, seed=1, name="same.csv")
    other = write(tmp_path, images=90, seed=2, share=0.15, name="other.csv")
    assert "The stated probabilities hold (p =" in run("--check", same)[1]
    code, output = run("--check", other, "--out", tmp_path / "check.html")
    assert code == 0
    assert "do not hold: the set is shifted" in output
    assert "offset of log odds" in (tmp_path / "check.html").read_text()


def test_images_of_classes_are_paired_with_every_class(run, tmp_path):
    write(tmp_path, images=90)
    for i, path in enumerate(
        sorted((tmp_path / "photos").iterdir(), key=lambda p: int(p.stem[2:]))
    ):
        place = tmp_path / "classes" / [*COLOURS][i % 3]
        place.mkdir(parents=True, exist_ok=True)
        path.rename(place / path.name)
    code, output = run("--pairs", tmp_path / "classes", "--templates", "a {}", "a photo of a {}")
    assert code == 0
    assert "540 pairs of 90 images, 33.3% of which match" in output
    assert "Term template:" in output
    assert "none of these" in output
    stored = json.loads((tmp_path / "run/calibration.json").read_text())
    assert stored["templates"] == ["a {}", "a photo of a {}"]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda text: text.replace("match", "score", 1), 2, "no column of match .*match_column"),
        (lambda text: text.replace(",yes", ",maybe", 1), 3, "row .* match is 1 or 0 .* 'maybe'"),
        (lambda text: text.replace("0_7.png", "gone.png"), 3, "gone.png does not exist"),
        (
            lambda text: f"{text}photos/0_0.png,a red thing,0\n",
            2,
            "1 pairs .* both labels, .* 'a red",
        ),
        (lambda text: "\n".join(text.splitlines()[:40]), 2, "20 images with a matching text"),
    ],
)
def test_unusable_pairs_are_refused_in_one_line(run, tmp_path, change, code, message):
    table = write(tmp_path)
    table.write_text(change(table.read_text()))
    found, error = run("--pairs", table)
    assert found == code
    assert re.search(message, error)
    assert not (tmp_path / "run/calibration.json").exists()


def test_published_weights_are_calibrated_in_a_new_folder(run, tmp_path):
    (tmp_path / "run/env.json").unlink()
    table = write(tmp_path)
    assert "--out FOLDER makes one with a copy" in run("--pairs", table)[1]
    assert run("--pairs", table, "--out", tmp_path / "made")[0] == 0
    assert Colours(tmp_path / "made").calibration.figures["images"] == 60
    assert not (tmp_path / "run/calibration.json").exists()


def test_a_calibration_is_of_its_model_alone(run, tmp_path):
    model, file = Colours(tmp_path / "run"), tmp_path / "run/calibration.json"
    with pytest.raises(UsageError, match="has no calibration, without which a score is no prob"):
        model.probability([], [])
    assert "calibrate it first, with --pairs" in run("--check", write(tmp_path))[1]
    run("--pairs", tmp_path / "pairs.csv", "--method", "isotonic")
    assert Colours(file.parent).calibration.curve.method == "isotonic"
    with pytest.raises(UsageError, match=r"for other weights or preprocessing .* again, or remove"):
        Colours(file.parent, "of others").probability([], [])
    stored = json.loads(file.read_text())
    for change, message in (
        ({"version": 0}, "of another version"),
        ({"curve": {}}, "is damaged: TypeError"),
        ({"curve": stored["curve"] | {"knots": None}}, "is damaged"),
    ):
        file.write_text(json.dumps(stored | change))
        with pytest.raises(UsageError, match=message):
            Colours(file.parent).probability([], [])


def test_copies_of_an_image_are_one_image(tmp_path):
    write(tmp_path, images=45)
    paths = sorted((tmp_path / "photos").iterdir())
    images = [path for path in paths for _ in COLOURS]
    images += [path.read_bytes() for path in paths for _ in COLOURS]
    model = Colours()
    model.one = lambda image, text: hash(text) % 7 + len(str(image)) % 5
    texts, matches = 2 * 45 * [*COLOURS], 2 * 45 * [True, False, False]
    assert model.calibrate(images, texts, matches).figures["images"] <= 45


@pytest.mark.parametrize(
    ("matches", "message"),
    [
        ([1, 0], r"matches has the shape \(2,\), where 1 images and 2 texts"),
        ([[1, 2]], "matches are True or False; got 2"),
        ([[1]], r"shape \(1, 1\), where 1 images"),
    ],
)
def test_matches_of_another_form_are_refused(matches, message):
    with pytest.raises(UsageError, match=message):
        Colours().calibrate([np.zeros((2, 2, 3), np.uint8)], ["red", "blue"], matches)


PHOTOGRAPHS = os.environ.get("VLC_PHOTOGRAPHS", "")


class Thumbnails(Calibrated):
    """Scores captions by ridge regression of their words on an image's 8 x 8 pixels."""

    logit_scale, logit_bias, score_fingerprint = 1.0, None, "thumbnails"

    def fit(self, images, texts, words=300):
        counts = collections.Counter(word for text in texts for word in {*text.lower().split()})
        self.words = [word for word, _ in counts.most_common(words)]
        x, y = self.pixels(images), self.text(texts)
        self.mean = y.mean(axis=0)
        self.map = np.linalg.solve(x.T @ x + 30 * np.eye(x.shape[1]), x.T @ (y - self.mean))
        return self

    def pixels(self, images):
        rows = [np.asarray(Image.open(image).convert("RGB").resize((8, 8))) for image in images]
        x = np.reshape(rows, (len(images), -1)) / 128 - 1
        return np.concatenate([x, x**2 - 0.3, np.ones((len(x), 1))], axis=1)

    def text(self, texts):
        return np.array([[word in text.lower().split() for word in self.words] for text in texts])

    def score_pairs(self, images, texts):
        y = self.text(texts) - self.mean
        return (self.pixels(images) @ self.map * y).sum(axis=1) / np.linalg.norm(y, axis=1)


def photographs(split, share=0.5, negatives=None):
    """Images, captions and matches of a split of Flickr8k, two pairs of each image; negatives:
    folder for images of inverted colours."""
    root, rng = Path(PHOTOGRAPHS) / "flickr8k", np.random.default_rng(0)
    with (root / "captions.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == split]
    images, texts, matches = [], [], []
    for k, row in enumerate(rows[::5]):
        path = root / row["image"]
        if negatives:
            path = negatives / path.name
            ImageOps.invert(Image.open(root / row["image"])).save(path)
        for _ in range(2):
            is_match = rng.random() < share
            other = row if is_match else rows[5 * k - rng.integers(5, len(rows) - 5)]
            images.append(path)
            texts.append(other["caption"])
            matches.append(is_match)
    return images, texts, matches


@pytest.mark.slow
@pytest.mark.skipif(not PHOTOGRAPHS, reason="VLC_PHOTOGRAPHS names no folder with flickr8k/")
def test_probabilities_of_photographs_hold_until_shifted(tmp_path):
    images, texts, _ = photographs("train", share=1.0)
    model = Thumbnails(None).fit(images[::2], texts[::2])
    figures = model.calibrate(*photographs("dev")).figures
    assert figures["accuracy"][1] > 0.55
    assert figures["calibration_error"]["low"] < 0 < figures["calibration_error"]["high"]
    assert not model.check_calibration(*photographs("test"))["is_shifted"]
    assert model.check_calibration(*photographs("test", share=0.2))["is_shifted"]
    assert model.check_calibration(*photographs("test", negatives=tmp_path))["is_shifted"]
