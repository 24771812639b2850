"""vlc_jax.evaluate: anybody's model on a benchmark, into a folder that the reports read."""

import ast
import importlib.util
import json
import os
import re

import numpy as np
import pytest
from PIL import Image

import vlc_jax
from tests.support import helpers
from tests.support.sets import sugarcrepe, sugarcrepe_pp, winoground
from vlc_jax import report
from vlc_jax.errors import UsageError
from vlc_jax.evaluation import library
from vlc_jax.evaluators import Scorer
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.report import compare, read_workdir, summary
from vlc_jax.run import workdir_files
from vlc_jax.types import ImageFeatures, TextFeatures


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for each in (sugarcrepe, sugarcrepe_pp, winoground):
        each.write(folder)
    return folder


def vectors(items):
    """Embeddings of pictures and texts: averages of a picture, letters of a text."""
    rows = []
    for item in items:
        if isinstance(item, str):
            rows.append([item.count(letter) + 0.5 for letter in "aeio"])
        else:
            rows.append([*np.asarray(item, np.float64).mean(axis=(0, 1)), 99.0])
    rows = np.array(rows) - np.mean(rows, axis=1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Model:
    """A model of another library, as a score function and as an encoder; it counts its calls."""

    def __init__(self, ends_after=None):
        self.calls, self.ends_after = [], ends_after

    def embed_images(self, images):
        self._called(images, ())
        # neither normalised nor float32
        return 3 * vectors(images)

    def embed_texts(self, texts):
        self._called((), texts)
        return 5 * vectors(texts)

    def score(self, images, texts):
        self._called(images, texts)
        return vectors(images) @ vectors(texts).T

    def _called(self, images, texts):
        assert all(image.mode == "RGB" for image in images)
        assert all(isinstance(image, Image.Image) for image in images)
        if self.ends_after is not None and len(self.calls) >= self.ends_after:
            raise KeyboardInterrupt
        self.calls.append((len(images), len(texts)))


def as_scorer():
    """The same model as a Scorer."""

    def embed_images(images):
        return ImageFeatures(vectors([image_ops.open_rgb(image) for image in images]))

    def own(image, text):
        texts = text.pooled.reshape(len(image.pooled), -1, text.pooled.shape[1])
        return np.einsum("nd,nkd->nk", image.pooled, texts)

    return Scorer(
        embed_images,
        lambda texts: TextFeatures(vectors(texts)),
        lambda image, text: image.pooled @ text.pooled.T,
        own,
    )


def scores(workdir, name):
    lines = (workdir / f"evals/{name}/0.scores.jsonl").read_text().splitlines()
    return [json.loads(line)["scores"] for line in lines]


@pytest.mark.parametrize("name", ["sugarcrepe", "sugarcrepe_pp", "winoground"])
def test_a_function_an_encoder_and_a_scorer_of_one_model_have_the_same_results(
    name, root, tmp_path
):
    forms = {"function": Model().score, "encoder": Model(), "scorer": as_scorer()}
    results = {
        form: vlc_jax.evaluate(model, name, root=root, workdir=tmp_path / form)[name]
        for form, model in forms.items()
    }
    one = results["function"]
    for form, other in results.items():
        np.testing.assert_allclose(
            np.ravel(scores(tmp_path / form, name)),
            np.ravel(scores(tmp_path / "function", name)),
            atol=1e-6,
        )
        for metric in one["summary"]:
            assert other["metrics"][metric] == pytest.approx(one["metrics"][metric]), metric
    headline = one["metrics"][one["summary"][0]]
    assert headline["low"] <= headline["value"] <= headline["high"]
    # of texts alone: a function has no embedding of a text
    is_of_texts = "text_accuracy" in results["encoder"]["metrics"]
    assert ("text_accuracy" in one["metrics"], is_of_texts) == (False, name == "sugarcrepe_pp")


def test_the_folder_is_read_as_that_of_a_run(root, tmp_path, capsys):
    paths = [tmp_path / "mine", tmp_path / "other"]
    for path, sign in zip(paths, (1, -1), strict=True):
        mine = vlc_jax.evaluate(
            lambda images, texts, sign=sign: sign * Model().score(images, texts),
            ["sugarcrepe", "winoground"],
            root=root,
            workdir=path,
            name=f"model {sign}",
        )
    assert "accuracy/subset=swap_obj" in mine["sugarcrepe"]["metrics"]
    runs = [read_workdir.read(path) for path in paths]
    assert [run.notes for run in runs] == [[], []]
    assert ("Model", "model 1") in summary.overview(runs[0])
    assert summary.status(runs[0])["word"] == "Evaluated"
    assert compare.without_config(["mine", "other"], runs) == []
    report.print_comparison(paths)
    assert "not the same" not in capsys.readouterr().out
    assert "A cat sits on its legs" in report.write_cases(paths).read_text()
    mine.print(published="CLIP ViT-B/32")
    assert "CLIP ViT-B/32" in capsys.readouterr().out


def test_sets_at_another_place_are_the_same_cases(root, tmp_path, capsys):
    (tmp_path / "link").symlink_to(root)
    paths = [tmp_path / "mine", tmp_path / "other"]
    for path, place in zip(paths, (root, tmp_path / "link"), strict=True):
        vlc_jax.evaluate(Model(), "winoground", root=place, workdir=path)
    report.print_comparison(paths)
    assert "≠" not in capsys.readouterr().out.partition("Values")[0]


@pytest.mark.parametrize("form", ["score", "encoder"])
def test_an_interrupted_evaluation_calls_for_the_rest_alone(form, root, tmp_path):
    def run(model, workdir):
        given = model.score if form == "score" else model
        options = {"root": root, "workdir": workdir, "name": "m", "batch_size": 1}
        return vlc_jax.evaluate(given, ["winoground", "sugarcrepe"], **options)

    whole = Model()
    expected = run(whole, tmp_path / "whole")
    stopped, rest = Model(ends_after=len(whole.calls) - 1), Model()
    with pytest.raises(KeyboardInterrupt):
        run(stopped, tmp_path / "parts")
    with (tmp_path / "parts/unfinished/sugarcrepe.jsonl").open("a") as file:
        file.write('{"key": "half')
    done = run(rest, tmp_path / "parts")
    # a named model is not probed
    assert len(rest.calls) == 1
    for name, result in expected.items():
        assert done[name]["metrics"] == result["metrics"]
    assert not (tmp_path / "parts/unfinished").exists()


def test_a_model_of_another_name_does_not_get_results_of_before(root, tmp_path):
    workdir, own = tmp_path / "w", Model()
    options = {"root": root, "workdir": workdir}
    first = vlc_jax.evaluate(own, "winoground", **options)
    with pytest.raises(UsageError, match=r"has results of .*Model.*, not of .*'n'"):
        vlc_jax.evaluate(own, "winoground", name="n", **options)
    again = vlc_jax.evaluate(own, "winoground", **options)
    assert again == first


@pytest.mark.parametrize("again", ["sugarcrepe", {"winoground": {"tie": "half"}}])
def test_another_model_of_the_same_name_is_refused_for_every_benchmark(again, root, tmp_path):
    """In one or two calls; an image and texts of the first set are kept for it."""
    workdir, one, other = tmp_path / "w", Model(), Model()
    vlc_jax.evaluate(one, "winoground", root=root, workdir=workdir)
    other.embed_images = lambda images: other._called(images, ()) or -vectors(images)
    before = sorted(workdir.rglob("*"))
    with pytest.raises(UsageError, match=r"has scores of another scorer: .*probe.png"):
        vlc_jax.evaluate(other, again, root=root, workdir=workdir)
    assert other.calls == [(1, 0), (0, 2)]
    assert sorted(workdir.rglob("*")) == before
    assert vlc_jax.evaluate(one, again, root=root, workdir=workdir)


def test_results_without_a_probe_are_taken_over_with_a_warning(root, tmp_path, capsys):
    options = {"root": root, "workdir": tmp_path / "w"}
    vlc_jax.evaluate(Model(), "winoground", **options)
    (tmp_path / "w/probe.json").unlink()
    capsys.readouterr()
    vlc_jax.evaluate(Model(), "winoground", **options)
    assert "results and no probe.json" in capsys.readouterr().err
    assert (tmp_path / "w/probe.json").exists()


def test_a_second_call_at_the_same_time_is_refused(root, tmp_path):
    options = {"root": root, "workdir": tmp_path / "w"}
    refused = []

    def score(images, texts):
        with pytest.raises(UsageError, match=f"in use by host .* pid {os.getpid()}") as error:
            vlc_jax.evaluate(Model(), "winoground", **options)
        refused.append(error)
        return Model().score(images, texts)

    vlc_jax.evaluate(score, "winoground", **options)
    assert refused
    # released
    assert vlc_jax.evaluate(Model().score, "winoground", workdir=tmp_path / "v", root=root)
    (tmp_path / "begun").mkdir()
    held = workdir_files.lock(tmp_path / "begun")
    with pytest.raises(UsageError, match="in use by"):
        vlc_jax.evaluate(Model(), "winoground", root=root, workdir=tmp_path / "begun")
    workdir_files.unlock(held)
    vlc_jax.evaluate(Model(), "winoground", root=root, workdir=tmp_path / "begun")


def test_a_damaged_image_does_not_call_for_a_download_and_a_missing_one_for_images_alone(tmp_path):
    sugarcrepe.write(tmp_path)
    image = tmp_path / "coco" / "val2017" / "000000000000.jpg"
    image.write_bytes(image.read_bytes()[:60])
    with pytest.raises(DataError, match=r"000000000000\.jpg") as damaged:
        vlc_jax.evaluate(Model(), "sugarcrepe", root=tmp_path, workdir=tmp_path / "run")
    assert "put " not in str(damaged.value)
    image.unlink()
    hint = "does not exist; put the images into ROOT/coco/val2017; they come from"
    with pytest.raises(DataError, match=hint):
        vlc_jax.evaluate(Model(), "sugarcrepe", root=tmp_path, workdir=tmp_path / "run")


def test_the_options_of_the_page_are_read(root, tmp_path, monkeypatch):
    page = (helpers.ROOT / "docs/library.md").read_text()
    mapping = ast.literal_eval(re.search(r'`(\{"winoground".*?\}\})`', page)[1])
    (tmp_path / "my_photos").mkdir()
    rows = [{"image": f"{name}.png", "caption": f"a {name}"} for name in ("dog", "cat")]
    for row in rows:
        Image.new("RGB", (8, 8), "red").save(tmp_path / "my_photos" / row["image"])
    helpers.write_rows(tmp_path / "my_photos/captions.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    assert set(vlc_jax.evaluate(Model(), mapping, root=root, workdir="w")) == set(mapping)


def bad_shape(images, texts):
    return np.zeros(len(texts))


def nan(images, texts):
    return np.full((len(images), len(texts)), np.nan)


def words(images, texts):
    return [["high"] * len(texts)] * len(images)


def nothing(images, texts):
    return None


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (bad_shape, r"returns an array of shape \(1, 2\); got shape \(2,\)"),
        (nan, r"returns finite numbers; 2 of 2 are NaN"),
        (words, r"returns an array of numbers of shape \(1, 2\); got list"),
        (nothing, r"returns an array of numbers .* got NoneType"),
    ],
)
def test_what_a_score_function_returns_is_checked_at_its_first_call(score, message, root, tmp_path):
    with pytest.raises(UsageError, match=message) as refused:
        vlc_jax.evaluate(score, "sugarcrepe", root=root, workdir=tmp_path / "w")
    assert "\n" not in str(refused.value)


class Tensor:
    """What numpy refuses to read until it is detached, on the host, and no bfloat16."""

    def __init__(self, array, ready=()):
        self.array, self.ready = array, ready

    def detach(self):
        return Tensor(self.array, (*self.ready, "detach"))

    def cpu(self):
        return Tensor(self.array, (*self.ready, "cpu"))

    def double(self):
        return self.array.astype(np.float64)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_tensors_of_torch_are_read_wherever_they_are(root, tmp_path):
    def score(images, texts):
        return Tensor(Model().score(images, texts).astype(np.float16))

    vlc_jax.evaluate(score, "winoground", root=root, workdir=tmp_path / "tensor")
    vlc_jax.evaluate(Model().score, "winoground", root=root, workdir=tmp_path / "array")
    pair = [np.ravel(scores(tmp_path / form, "winoground")) for form in ("tensor", "array")]
    np.testing.assert_allclose(*pair, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"benchmarks": "sugarcrep"}, "did you mean 'sugarcrepe'"),
        ({"benchmarks": []}, "one name or several; got none"),
        ({"benchmarks": "sugarcrepe", "tie": "sometimes"}, "benchmark sugarcrepe: .*sometimes"),
        ({"benchmarks": "sugarcrepe", "roots": 1}, "benchmark sugarcrepe: .*roots"),
        (
            {"benchmarks": "scenes_superposition", "root": None},
            "superposition: .* reads embeddings",
        ),
        ({"benchmarks": "winoground", "geometry": True}, "winoground: .* reads embeddings"),
        ({"benchmarks": "sugarcrepe", "tokens": True}, "sugarcrepe: .* reads embeddings"),
        ({"benchmarks": "scenes_relation_swap"}, "root is the folder of published sets"),
        ({"benchmarks": "sugarcrepe", "count": 0}, "count is a whole number from 1 on; got 0"),
        ({"benchmarks": "sugarcrepe", "batch_size": 0}, "batch_size .* at least 1; got 0"),
        ({"benchmarks": "sugarcrepe", "model": "runs/clip"}, "one of vlc_jax.load.*; got str"),
        ({"benchmarks": "sugarcrepe", "workdir": "gs://b/w"}, "local folder; got gs://b/w"),
    ],
)
def test_wrong_requests_are_refused_before_any_call_and_leave_no_folder(
    arguments, message, root, tmp_path
):
    model = Model()
    given = {"model": model.score, "root": root, "workdir": tmp_path / "w"} | arguments
    with pytest.raises(UsageError, match=message):
        vlc_jax.evaluate(given.pop("model"), given.pop("benchmarks"), **given)
    assert (model.calls, [*tmp_path.iterdir()]) == ([], [])


def test_missing_files_are_refused_before_any_call(root, tmp_path):
    model, names = Model(), ["sugarcrepe", "vg_relation"]
    with pytest.raises(DataError, match=r"^benchmark vg_relation: .*put "):
        vlc_jax.evaluate(model.score, names, root=root, workdir=tmp_path / "w")
    assert (model.calls, [*tmp_path.iterdir()]) == ([], [])


def test_a_folder_of_something_else_is_refused(root, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match="is of something else: choose an empty or new folder"):
        vlc_jax.evaluate(Model(), "sugarcrepe", root=root, workdir=tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="is the workdir of a run"):
        vlc_jax.evaluate(Model(), "sugarcrepe", root=root, workdir=tmp_path)


def test_a_function_is_asked_for_nothing_that_is_not_needed(root, tmp_path):
    """Each image with its own texts, both subsets' texts of a shared image in one call."""
    model = Model()
    vlc_jax.evaluate(model.score, "sugarcrepe", root=root, workdir=tmp_path / "w")
    benchmark = READERS["sugarcrepe"](root=root)
    texts = {}
    for case in benchmark.cases:
        texts.setdefault(case.images[0], set()).update(case.captions)
    assert model.calls[1:] == [(1, len(each)) for each in texts.values()]


def test_retrieval_and_zeroshot_by_a_function_are_those_by_an_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr("vlc_jax.evaluators.foreign.TEXTS", 3)
    names = {"scenes_retrieval": {"count": 6}, "zeroshot": {"source": "digits", "count": 12}}
    one, other = (
        vlc_jax.evaluate(model, names, workdir=tmp_path / form)
        for form, model in {"function": Model().score, "encoder": Model()}.items()
    )
    rank = "image_to_text_mean_rank"
    for name, metric in (("scenes_retrieval", rank), ("zeroshot", "accuracy")):
        assert one[name]["metrics"][metric] == other[name]["metrics"][metric], name


def test_the_name_of_the_function_is_no_module():
    assert vlc_jax.evaluate is library.evaluate
    assert importlib.util.find_spec("vlc_jax.evaluate") is None


def test_a_model_of_another_library_has_the_devices_for_itself(root, tmp_path):
    """JAX would take three quarters of a GPU's memory at its first use."""
    program = tmp_path / "program.py"
    program.write_text(
        "import jax._src.xla_bridge, numpy as np, vlc_jax\n"
        "score = lambda images, texts: np.zeros((len(images), len(texts)))\n"
        f"vlc_jax.evaluate(score, 'winoground', root={str(root)!r}, workdir='w')\n"
        "assert not jax._src.xla_bridge._backends\n"
    )
    done = helpers.python(program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
