"""A trained model in Python: its embeddings and scores are those of evaluation."""

import importlib
import inspect
import json
import shutil

import jax
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

import vlc_jax
from tests.support import compilations, helpers
from vlc_jax import losses, weights
from vlc_jax.encode import inference, inputs
from vlc_jax.encode.batches import BatchEncoder
from vlc_jax.encode.encoder import Encoder
from vlc_jax.errors import DivergedError, UsageError
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.models import variants
from vlc_jax.models.clip import CLIP
from vlc_jax.run.workdir import saved_config
from vlc_jax.setup import resolve
from vlc_jax.setup.init_from import architecture
from vlc_jax.tools import export, verify_export


@pytest.fixture(scope="module")
def model(trained):
    return vlc_jax.load(trained, batch_size=4)


@pytest.mark.slow
def test_scores_of_a_run_are_those_of_its_evaluation(model, trained):
    name = "scenes_attribute_swap"
    benchmark = resolve(saved_config(trained), "eval").evaluation.benchmarks[name].read()
    rows = {row["id"]: row for row in helpers.rows(trained / f"evals/{name}/6.scores.jsonl")}
    for case in benchmark.cases[:6]:
        found = model.score(case.images, case.captions)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[0], np.ravel(rows[case.id]["scores"]), atol=1e-5)


@pytest.mark.slow
def test_a_loaded_model_is_evaluated_as_in_its_run(model, trained, tmp_path):
    name = "scenes_attribute_swap"
    expected = json.loads((trained / f"evals/{name}/6.json").read_text())
    workdir = tmp_path / "w"
    results = vlc_jax.evaluate(model, {name: expected["options"]}, workdir=workdir)
    assert results[name]["metrics"] == expected["metrics"]
    assert results[name]["version"] == expected["version"]
    lines = workdir / f"evals/{name}/0.scores.jsonl"
    assert lines.read_text() == (trained / f"evals/{name}/6.scores.jsonl").read_text()
    assert vlc_jax.evaluate(model, {name: expected["options"]}, workdir=workdir) == results
    with pytest.raises(UsageError, match="is the workdir of a run: choose"):
        vlc_jax.evaluate(model, name, workdir=trained)
    with pytest.raises(UsageError, match="scores answers to questions, and this model cannot"):
        vlc_jax.evaluate(model, "mmvp", protocol="multiple_choice", workdir=tmp_path / "x")
    with pytest.raises(DataError, match="benchmark mmvp: there is no folder"):
        vlc_jax.evaluate(model, "mmvp", root=tmp_path, workdir=tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(UsageError, match=r"has results of .*fingerprint.*, not of"):
        vlc_jax.evaluate(lambda images, texts: 0, name, workdir=workdir)


def test_a_model_that_is_not_finite_scores_nothing(model):
    params = jax.tree.map(lambda x: x, model.params)
    params["logit_scale"] = params["logit_scale"] * np.nan
    broken = model.with_params(params)
    pixels = np.zeros((40, 30, 3), np.uint8)
    for call in (
        lambda: broken.score([pixels], ["a red circle"]),
        lambda: broken.embed_images([pixels]),
        lambda: broken.embed_texts(["a red circle"]),
        lambda: broken.zero_shot([pixels], ["circle"]),
    ):
        with pytest.raises(DivergedError, match="1 of 1 values of logit_scale are not"):
            call()


@pytest.mark.slow
def test_a_cosine_is_the_product_of_embeddings(model):
    rng = np.random.default_rng(0)
    images = list(rng.integers(0, 255, (7, 40, 30, 3), np.uint8))
    texts = [f"a {colour} {thing}" for colour in ("red", "blue") for thing in ("circle", "square")]
    image, text = model.embed_images(images), model.embed_texts(texts)
    assert (image.dtype, image.shape, text.shape) == (np.float32, (7, 96), (4, 96))
    np.testing.assert_allclose(np.linalg.norm(image, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model.score(images, texts), image @ text.T, atol=1e-5)
    np.testing.assert_allclose(model.embed_images(images[5:6]), image[5:6], atol=1e-5)
    assert model.embed_images([]).shape == (0, 96)
    assert model.score([], texts).shape == (0, 4)
    assert model.logit_scale == pytest.approx(1 / 0.07, rel=0.1)
    assert (model.logit_bias, model.config["model"]["name"]) == (None, "clip")


@pytest.fixture(params=["scenes.clip", "dcsm"])
def untrained(request):
    """A setup with this head and towers of one block each, and its initial variables."""
    config = importlib.import_module(f"vlc_jax.configs.{request.param}").get_config()
    with config.unlocked():
        config.model.image["depth"] = config.model.text["depth"] = 1
        config.pretrain, config.frozen = None, ()
    setup = resolve(config, "weights")
    stats = setup.parameters.init_batch_stats()
    if stats:  # those of one step: without any step scores are 0 / 0
        stats = {
            "head": {"mean": np.float32(0.1), "square": np.float32(0.2), "steps": np.float32(1)}
        }
    return setup, {"params": setup.parameters.init(), "batch_stats": stats}


@pytest.mark.slow
def test_scores_in_blocks_are_those_of_all_at_once(untrained, monkeypatch):
    setup, variables = untrained
    shapes, kept, score, embed = [], [], CLIP.score, BatchEncoder.__call__

    def traced(model, image, text):
        shapes.append((len(image.pooled), len(text.pooled)))
        return score(model, image, text)

    def embedded(encoder, variables, items):
        kept.append(len(items))
        return embed(encoder, variables, items)

    monkeypatch.setattr(CLIP, "score", traced)
    monkeypatch.setattr(BatchEncoder, "__call__", embedded)
    monkeypatch.setattr(inference, "_KEPT_BATCHES", 2)
    rng = np.random.default_rng(0)
    images = list(rng.integers(0, 255, (25, 40, 40, 3), np.uint8))
    colours, things = ("red", "blue", "green", "grey", "black"), ("circle", "square", "ring")
    texts = [f"a {size} {c} {t}" for size in ("big", "tiny") for c in colours for t in things]
    model = inference.Model(setup, variables, batch_size=10)
    found = {(n, m): model.score(images[:n], texts[:m]) for n, m in ((25, 30), (21, 11), (13, 28))}
    assert len(shapes) == 1
    assert model.scores_are_cosines == (not setup.model.has_head)
    if setup.model.has_head:
        assert max(kept) <= 20
    for n, m in ((5, 8), (7, 6), (8, 5), (6, 7)):
        found[n, m] = model.score(images[:n], texts[:m])
    assert len(shapes) == 2
    whole = model._scorer(10)
    all_at_once = whole.score(whole.embed_images(images), whole.embed_texts(texts))
    for (n, m), scores in found.items():
        np.testing.assert_allclose(scores, all_at_once[:n, :m], atol=2e-6, rtol=1e-5)


@pytest.mark.slow
def test_tokens_of_the_towers_surround_the_pooled_ones(untrained):
    setup, variables = untrained
    rng = np.random.default_rng(0)
    images = list(rng.integers(0, 255, (3, 40, 40, 3), np.uint8))
    texts = ["a red circle", "a big red circle and a blue square"]
    scorer = Encoder(setup).scorer(variables)
    image, text = scorer.image_tokens(images), scorer.text_tokens(texts)
    tower = setup.model.image
    assert image.tokens.shape == (3, tower.grid**2, tower.embed)  # without the class token
    for tokens in (image.tokens, text.tokens):
        np.testing.assert_allclose(np.linalg.norm(tokens, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(image.pooled, scorer.embed_images(images).pooled, atol=1e-5)
    ends = text.tokens[np.arange(2), text.mask.sum(axis=1) - 1]
    np.testing.assert_allclose(ends, text.pooled, atol=1e-5)
    if setup.model.has_head:
        model = inference.Model(setup, variables)
        maps, patches = model.patch_maps(images[:2], texts), tower.grid**2
        assert maps["similarity"].shape[:2] == (2, patches)
        with pytest.raises(UsageError, match="reads questions about images or marks of words"):
            model.encode_text(model.params, model.tokenizer(texts))
    if tower.pooling == "cls":
        assert np.abs(image.tokens - image.pooled[:, None]).max(axis=-1).min() > 0.01


@pytest.mark.slow
def test_an_image_is_a_path_bytes_an_array_or_a_picture(model, tmp_path):
    (name,) = helpers.write_photos(tmp_path, 1, ".png")
    path = tmp_path / name
    with Image.open(path) as picture:
        kinds = [path, str(path), path.read_bytes(), np.asarray(picture), picture.convert("RGBA")]
        found = model.embed_images(kinds)
        turned = tmp_path / "turned.jpg"
        exif = Image.Exif()
        exif[0x0112] = 6  # orientation: a quarter turn
        picture.save(turned, exif=exif)
    assert np.ptp(found, axis=0).max() == 0
    with Image.open(turned) as picture:
        assert np.ptp(model.embed_images([turned, picture]), axis=0).max() == 0


@pytest.mark.slow
def test_wrong_requests_are_refused(model, trained, tmp_path):
    with pytest.raises(DataError, match=r"image file .*missing\.jpg does not exist"):
        model.embed_images([tmp_path / "missing.jpg"])
    with pytest.raises(UsageError, match="there is no workdir and there are no weights at nowhere"):
        vlc_jax.load("nowhere")
    with pytest.raises(UsageError, match="whose config sets variant"):
        vlc_jax.load(trained, variant="B/32")
    (tmp_path / "run" / "pretrain" / "checkpoints").mkdir(parents=True)
    with pytest.raises(UsageError, match="stopped in its pretraining: the same command continues"):
        vlc_jax.load(tmp_path / "run")


def test_weights_alone_say_which_model_they_are_of(tiny):
    folder, model, params = tiny
    loaded = vlc_jax.load(folder)
    assert loaded.config["model"]["variant"] == "tiny"
    ids = np.array([[1, 2, 3] + 61 * [0], [3, 1] + 62 * [0]], np.int32)
    text = compilations.apply(model, {"params": params}, ids, method="encode_text")
    np.testing.assert_allclose(loaded.embed_texts(["A red cat!", "cat a"]), text.pooled, atol=1e-5)
    assert loaded.logit_scale == pytest.approx(float(np.exp(params["logit_scale"])))
    assert loaded.logit_bias == pytest.approx(float(params["logit_bias"]))


def test_a_published_name_and_a_repository_are_loaded_alike(tiny, hub, tmp_path):
    """With open_clip's files, of which the tokenizer is one."""
    folder, model, params = tiny
    arrays = weights.save(params, "open_clip_siglip", architecture(model))
    save_file(arrays, tmp_path / "open_clip_model.safetensors")
    text = {"context_length": 64, "vocab_size": 5, "tokenizer_kwargs": {"clean": "canonicalize"}}
    vision = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map"}
    config = {"model_cfg": {"vision_cfg": vision, "text_cfg": text}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    names = ("open_clip_model.safetensors", "open_clip_config.json", "tokenizer.json")
    hub.put("timm/ViT-B-16-SigLIP", {name: (folder / name).read_bytes() for name in names})
    named = vlc_jax.load("ViT-B-16-SigLIP", pretrained="webli")
    assert (named.config["model"]["variant"], named.config["model"]["activation"]) == ("tiny", None)
    assert named.fingerprint == vlc_jax.load("hf://timm/ViT-B-16-SigLIP").fingerprint
    with pytest.raises(UsageError, match=r"path: open_clip://ViT-B-16-SigLIP has no weights 'web'"):
        vlc_jax.load("ViT-B-16-SigLIP", pretrained="web")
    with pytest.raises(UsageError, match=r"at ViT-B-32; published .* pretrained=openai, laion400m"):
        vlc_jax.load("ViT-B-32")


GREYS = [np.full((9, 12, 3), grey, np.uint8) for grey in (0, 90, 250)]


TEXTS = ["a red cat", "cat a", "red"]


def test_pure_functions_compute_what_the_methods_do(tiny):
    model = vlc_jax.load(tiny[0])
    pixels, ids = model.preprocess(GREYS), model.tokenizer(TEXTS)

    def loss(params, pixels):
        outputs = model.apply(params, pixels, ids, negative_ids=ids[:, None])
        config = {"negclip": {"weight": 1.0}, "sigmoid": {"weight": 1.0}}
        return losses.total(config, outputs)[0], outputs

    step = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    (slopes, of_pixels), outputs = step(model.params, pixels.astype(np.float32))
    image, text = model.embed_images(GREYS), model.embed_texts(TEXTS)
    np.testing.assert_allclose(outputs.image.pooled, image, atol=1e-5)
    np.testing.assert_allclose(outputs.text.pooled, text, atol=1e-5)
    np.testing.assert_allclose(outputs.scores, model.score(GREYS, TEXTS), atol=1e-5)
    for encode, rows, features in (
        (model.encode_image, pixels, outputs.image),
        (model.encode_text, ids, outputs.text),
    ):
        assert jax.eval_shape(encode, model.params, rows).pooled.shape == features.pooled.shape
    for part in (of_pixels, slopes["image"], slopes["text"]):
        assert any(np.abs(x).max() > 0 for x in jax.tree.leaves(part))
    moved = jax.tree.map(lambda x, slope: x - 0.1 * slope, model.params, slopes)
    other = model.with_params(moved)
    assert not np.allclose(other.embed_texts(TEXTS), text, atol=1e-3)
    assert other.logit_scale == pytest.approx(float(np.exp(moved["logit_scale"])))


def test_a_saved_model_scores_to_the_bit_and_is_exported(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(verify_export, "check", lambda *_: "not checked")
    first = vlc_jax.load(tiny[0])
    model = first.with_params(jax.tree.map(lambda x: x + 0.01, first.params))
    images = [*np.random.default_rng(0).integers(0, 255, (40, 9, 12, 3), np.uint8)]
    model.calibrate(images, TEXTS, np.arange(120).reshape(40, 3) % 2)
    score, probability = model.score(GREYS, TEXTS), model.probability(GREYS, TEXTS)
    pairs = model.score_pairs([GREYS[0], *GREYS[:2], GREYS[0]], [*TEXTS, TEXTS[0]])
    np.testing.assert_allclose(pairs, score[[0, 0, 1, 0], [0, 1, 2, 0]], atol=1e-6)
    model.save(tmp_path / "saved")
    with pytest.raises(UsageError, match="saved exists already; name a new folder"):
        model.save(tmp_path / "saved")
    moved = (tmp_path / "saved").rename(tmp_path / "moved")
    first.save(tmp_path / "first")
    (tmp_path / "tokenizer.json").unlink()  # of the weights that it began with
    with pytest.raises(UsageError, match=r"files of the tokenizer at .* are gone"):
        first.save(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    _, verdict = export.export(moved, "hf", tmp_path / "out")
    assert "calibration.json is copied" in verdict
    for folder in (moved, tmp_path / "out"):
        loaded = vlc_jax.load(folder)
        np.testing.assert_array_equal(loaded.score(GREYS, TEXTS), score)
        np.testing.assert_array_equal(loaded.probability(GREYS, TEXTS), probability)
    with pytest.raises(UsageError, match="has no calibration"):
        vlc_jax.load(tmp_path / "first").probability(GREYS, TEXTS)
    shutil.copy(moved / "calibration.json", tmp_path / "first")
    _, verdict = export.export(tmp_path / "first", "hf", tmp_path / "other")
    assert "calibration.json is of other parameters: the folder has none" in verdict
    assert "Saved by a program" in (tmp_path / "other/README.md").read_text()


IDS = np.zeros((3, 4), np.int32)


def apply(model, images, **hard):
    """`model.apply` of this number of images and of three captions, without the checks of types."""
    whole = inspect.unwrap(inference.Model.apply)
    return whole(model, model.params, np.zeros((images, 8, 8, 3), np.uint8), IDS, **hard)


def test_zero_shot_is_the_score_of_the_mean_of_the_prompts(tiny):
    model = vlc_jax.load(tiny[0])
    found = model.zero_shot(GREYS, TEXTS)
    np.testing.assert_allclose(found, model.score(GREYS, TEXTS), atol=1e-5)
    found = model.zero_shot(GREYS, ["red", "cat"], ["{}", "a {} cat", "unknown {}"])
    prompts = [
        [t.format(name) for t in ("{}", "a {} cat", "unknown {}")] for name in ("red", "cat")
    ]
    means = [model.embed_texts(of_class).mean(axis=0) for of_class in prompts]
    means = np.stack([mean / np.linalg.norm(mean) for mean in means])
    np.testing.assert_allclose(found, model.embed_images(GREYS) @ means.T, atol=1e-5)
    assert model.zero_shot([], ["red"]).shape == (0, 1)
    assert model._encodable([" a cat\n"]) == ["a cat"]  # as captions of records


def test_negation_changes_the_scores_of_texts_that_negate_alone(tiny):
    model, texts = vlc_jax.load(tiny[0]), ["red cat", "red and no cat"]
    plain, found = model.score(GREYS, texts), model.score(GREYS, texts, negation=True)
    np.testing.assert_array_equal(found[:, 0], plain[:, 0])
    assert (found[:, 1] != plain[:, 1]).all()


def test_segments_meet_parts_of_images_and_the_whole(tiny):
    model, texts = vlc_jax.load(tiny[0]), ["red cat", "red cat and grey dog", "they are here"]
    plain = model.score(GREYS, texts)
    # every crop of a grey image is grey, and the only phrase of the first text is the text
    crops = model.score(GREYS, texts, segments="crops")
    np.testing.assert_allclose(crops[:, [0, 2]], plain[:, [0, 2]], atol=1e-5)
    phrases = model.embed_images(GREYS) @ model.embed_texts(["red cat", "grey dog"]).T
    np.testing.assert_allclose(crops[:, 1], phrases.mean(axis=1), atol=1e-5)
    patches = model.score(GREYS, texts, segments={"weight": 1.0})
    np.testing.assert_allclose(patches[:, 2], plain[:, 2], atol=1e-6)
    assert np.abs(patches - plain)[:, :2].min() > 1e-4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.zero_shot(GREYS, "red"), "class_names are a list, even of one"),
        (lambda m: m.zero_shot(GREYS, ["red"], "a {}"), "templates are a list"),
        (lambda m: m.zero_shot(GREYS, ["red"], ["a"]), r"have {} once, in place of .*got 'a'"),
        (lambda m: m.zero_shot(GREYS, []), "at least one class"),
        (lambda m: m.with_params({}), r"the shape of .* is \(.*\) there and None here"),
        (lambda m: m.with_params({**m.params, "x": np.ones(2)}), r"of x is None .* \(2,\) here"),
        (lambda m: apply(m, 2), "a caption for each image; got 2 images and 3 captions"),
        (lambda m: apply(m, 3, negative_ids=IDS), r"negative_ids has the shape .*; got \(3, 4\)"),
        (lambda m: apply(m, 3, positive_ids=IDS[:2, None]), r"positive_ids .* got \(2, 1, 4\)"),
        (lambda m: m.patch_maps(GREYS, TEXTS), "have no patch maps: load .* pacl, sparc or dcsm"),
        (lambda m: m.patch_maps(GREYS, TEXTS[:1]), "3 images and 1 texts: one of each"),
    ],
)
def test_a_wrong_argument_is_one_line(tiny, call, message):
    with pytest.raises(UsageError, match=message):
        call(vlc_jax.load(tiny[0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda load: load(None), "load takes the path of a run or of weights; got None"),
        *(
            (lambda load, size=size: load(".", batch_size=size), f"from 1 on; got {size!r}")
            for size in ("8", 2.5, None, 0)
        ),
        (
            lambda _: inspect.unwrap(inputs.as_texts)(["red", None]),
            r"texts\[1\] is None, no string:",
        ),
    ],
)
def test_a_value_of_another_type_is_one_line(call, message):
    load = inspect.unwrap(vlc_jax.load)  # without the types that tests check first
    with pytest.raises(UsageError, match=message):
        call(load)


def test_the_values_of_weights_are_read_once(tiny, monkeypatch):
    folder, readings, read = tiny[0], [], weights.files.read

    def counted(path, *, only_shapes=False):
        readings.append(only_shapes)
        return read(path, only_shapes=only_shapes)

    monkeypatch.setattr(weights.files, "read", counted)
    vlc_jax.load(folder)
    assert sorted(readings) == [False, True]


def test_weights_of_no_known_size_name_theirs(tiny, monkeypatch):
    folder = tiny[0]
    monkeypatch.delitem(variants.VARIANTS, "tiny")
    with pytest.raises(UsageError, match=r"\(24, 2\), patches of 8, text tower \(24, 1\)"):
        vlc_jax.load(folder)


@pytest.mark.slow
def test_the_command_prints_a_table_or_json(trained, tmp_path):
    names = [str(tmp_path / name) for name in helpers.write_photos(tmp_path, 2)]
    words = ("-m", "vlc_jax.tools.score", "--model", trained, "--images", *names)
    texts = ("a red circle", "a blue square", "no green square")
    done = helpers.python(*words, "--texts", *texts, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    model = vlc_jax.load(trained)
    np.testing.assert_allclose(found["scores"], model.score(names, texts), atol=1e-5)
    done = helpers.python(*words, "--texts", *texts)
    for name, row in zip(names, found["scores"], strict=True):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(name)]
        cells = line.split()[1:]
        assert [float(cell.rstrip("*")) for cell in cells] == pytest.approx(row, abs=1e-4)
        assert [k for k, cell in enumerate(cells) if "*" in cell] == [int(np.argmax(row))]
    done = helpers.python(*words[:4], "--images", "none.jpg", "--texts", "a")
    assert done.returncode == 3
    assert "none.jpg does not exist" in done.stderr


@pytest.mark.slow
def test_a_model_without_a_form_elsewhere_is_not_exported(trained, tmp_path):
    words = ("-m", "vlc_jax.tools.export", "--workdir", trained, "--to", "hf")
    done = helpers.python(*words, "--out", tmp_path / "out")
    assert done.returncode == 3
    assert "(mini): " in done.stderr
    assert "with vlc_jax.load" in done.stderr
    assert not (tmp_path / "out").exists()
