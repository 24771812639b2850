"""A folder of LLaVA on benchmarks by every protocol, and its answers in words."""

import jax
import numpy as np
import pytest
from PIL import Image

import vlc_jax
from tests.support import llava_folder, small_models, tiny
from tests.support.compilations import apply
from tests.support.llava_folder import pictures
from vlc_jax import evaluators
from vlc_jax.configs.scenes import captioner as scenes_captioner
from vlc_jax.encode import answers, encoder, inference, score_blocks
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.record import Conversation, ImageQuestion
from vlc_jax.setup import resolve
from vlc_jax.setup.llava_config import config_of_llava
from vlc_jax.tools import export, generate
from vlc_jax.tools import llava_folder as to_folder
from vlc_jax.weights import llava as llava_files
from vlc_jax.weights.llava import read_sizes

PROTOCOLS = "vqascore+vqascore_no_end+keywords+letters+options+written+m3id"
QUESTION = "Is the red on or under the blue"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder, its model and its parameters."""
    path = tmp_path_factory.mktemp("llava")
    return path, *llava_folder.write(path, scale=0.6)


@pytest.fixture(scope="module")
def model(folder):
    return vlc_jax.load(folder[0], batch_size=8)


@pytest.fixture(scope="module")
def evaluated(folder, tmp_path_factory):
    """Name of an evaluation -> its result and the rows of its cases."""
    where = tmp_path_factory.mktemp("run")
    setup, found, report = llava_folder.evaluated(folder[0], where, PROTOCOLS)
    assert setup.config["model"]["head"]["scores"] == "answer"  # filled in, for config.json
    assert all(name in report for name in found)
    return found


def test_arrays_of_the_files_go_to_the_devices_one_by_one(folder, monkeypatch):
    """A 7B would else be in the memory of the host as a whole."""
    load, kept = llava_files.load, []

    def watched(*args, put, **options):
        def put_and_keep(path, array):
            kept.append(put(path, array))
            return kept[-1]

        return load(*args, put=put_and_keep, **options)

    monkeypatch.setattr(llava_files, "load", watched)
    vlc_jax.load(folder[0])
    assert len(kept) == len(jax.tree.leaves(folder[2]))
    assert all(isinstance(array, jax.Array) for array in kept)


@pytest.mark.slow
def test_every_result_says_protocol_prompt_and_checkpoint(evaluated, folder):
    kinds = {"keywords": "keywords", "letters": "multiple_choice", "vqascore": "pairs"}
    for result, rows in evaluated.values():
        assert rows
        prompt = result["details"]["prompt"]
        assert prompt["template"] == "<s> USER:<image>\n{question} ASSISTANT:"
        assert prompt["question"]
        assert result["checkpoint"] == {"init_from": str(folder[0]), "step": 0}
        assert result["weights"] is not None
        assert len(result["made_with"]["image"]["weights"]) > 8
    for protocol, expected in kinds.items():
        own = [result for name, (result, _) in evaluated.items() if name.endswith(protocol)]
        assert expected in {result["protocol"] for result in own}
    assert [evaluated[f"mmvp_m3id_t{t}"][0]["details"]["decoding"]["first_step"] for t in (0, 1)] \
        == [0, 1]  # fmt: skip


def test_the_end_token_and_the_protocol_change_the_scores(evaluated):
    def scores(name):
        return np.array([np.ravel(row["scores"]) for row in evaluated[name][1]])

    assert np.abs(scores("winoground_vqascore") - scores("winoground_vqascore_no_end")).min() > 0
    assert np.abs(scores("mmvp_letters") - scores("mmvp_options")).min() > 0
    metrics = evaluated["mmvp_options"][0]["metrics"]
    whole = metrics["relaxed_pair"]["value"] + metrics["relaxed_pair_literal"]["value"]
    assert whole == pytest.approx(1)
    rows = evaluated["whatsup_a_two_way_keywords"][1]
    assert rows[0]["question"].startswith("Is the pillow to the left of or to the right of the")
    assert evaluated["whatsup_a_two_way_keywords"][0]["metrics"]["unparsed"]["count"] == 4


def test_answers_do_not_depend_on_other_images_and_are_streamed(model):
    images = pictures(3)
    found = model.answers(images, [QUESTION, "Does this show", QUESTION], max_tokens=6)
    assert len(set(found)) > 1
    assert model.answers(images[:1], [QUESTION], max_tokens=6) == found[:1]
    streamed = "".join(model.stream(images[0], QUESTION, max_tokens=6))
    assert streamed.strip() == found[0]
    strong = {"kind": "m3id", "alpha": 1.0, "decay": 3.0}
    assert model.answers(images[:1], [QUESTION], **strong, max_tokens=6) != found[:1]
    with pytest.raises(UsageError, match="unknown decoding 'beam'"):
        model.answers(images[:1], [QUESTION], kind="beam")
    with pytest.raises(UsageError, match="max_tokens is at least 1; got 0"):
        next(model.stream(images[0], QUESTION, max_tokens=0))


def test_a_question_with_several_answers_is_read_once(model):
    scorer, reads = model._scorer(2), []
    image = scorer.embed_images(pictures(2))
    answered = [("on", "under"), ("red", "red on the blue")]
    questions = [f"{QUESTION} {QUESTION} {QUESTION}", "Is the red"]
    pairs = zip(questions, answered, strict=True)
    text = scorer.embed_texts(
        [Conversation.scored(q, each) for q, options in pairs for each in options]
    )

    def counted(image, text):
        reads.append((0 if text.shared is None else text.shared.shape[1], text.ids.shape[1]))
        return scorer.score_options(image, text)

    def shared(image, text):
        return score_blocks.sharing_prefixes(counted, image, text)(image, text)

    plain = score_blocks.on_short_texts(scorer.score_options)(image, text)
    sharing = score_blocks.on_short_texts(shared)
    np.testing.assert_allclose(sharing(image, text), plain, rtol=1e-5)
    assert reads == [(32, 8)]  # the longest question, the longest answer with its end token
    # equal texts tie; texts of which nothing is shared, or all counts, are left as they are
    same = evaluators.scorer.take(text, np.array([0, 0, 2, 2]))
    first, second = sharing(image, same).T
    np.testing.assert_array_equal(first, second)
    for other in (
        text._replace(mask=text.ids > 0),
        evaluators.scorer.take(text, np.array([0, 2, 1, 3])),
    ):
        reads.clear()
        found = sharing(image, other)
        np.testing.assert_array_equal(
            found, score_blocks.on_short_texts(scorer.score_options)(image, other)
        )
        assert reads[0][0] == 0


def test_evaluations_read_a_question_with_several_answers_once(model, monkeypatch):
    plain, found = model._scorer(2), []
    image = plain.embed_images(pictures(2))
    question = f"{QUESTION} {QUESTION} {QUESTION}"
    text = plain.embed_texts(
        [Conversation.scored(question, each) for each in ("on", "under", "red", "blue")]
    )
    expected = score_blocks.on_short_texts(plain.score_options)(image, text)
    sharing = encoder.sharing_prefixes

    def watched(score, *given):
        found.append(sharing(score, *given) is not score)
        return sharing(score, *given)

    monkeypatch.setattr(encoder, "sharing_prefixes", watched)
    scorer = encoder.Encoder(model._setup, once=True).scorer(model._variables)
    scores = scorer.score_options(image, text)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert found == [True]


ADAPTERS = {"targets": "head/lm/blocks/(query|value)/kernel", "full": "head/projector/.*"}


@pytest.mark.slow
def test_a_trained_llava_is_exported_and_scores_alike(folder, model, tmp_path):
    workdir = llava_folder.trained(folder[0], tmp_path / "data", QUESTION, lora=ADAPTERS)
    names, _ = export.export(workdir, "llava", tmp_path / "llava")
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= set(names)
    ours, exported = vlc_jax.load(workdir), vlc_jax.load(tmp_path / "llava")
    assert read_sizes(tmp_path / "llava")["image_id"] == llava_folder.IMAGE_ID
    texts = [Conversation.scored(QUESTION, "on"), Conversation.scored(QUESTION, "under")]
    found = exported.score(pictures(2), texts)
    np.testing.assert_allclose(found, ours.score(pictures(2), texts), atol=2e-5)
    assert np.abs(found - model.score(pictures(2), texts)).max() > 1e-3  # it was trained


@pytest.mark.parametrize(("window", "family"), [(None, "llama"), (7, "mistral")])
def test_a_captioner_that_no_llava_began_has_a_family_too(folder, window, family):
    config = config_of_llava(folder[0])
    with config.unlocked():
        config.init_from, config.model.head.decoder.window = None, window
    found = to_folder.sizes(resolve(config, "weights"), folder[0])
    # no id of the vocabulary is left for the image's token: there are more
    assert (found["family"], found["image_id"], found["lm"]["vocab"]) == (family, 30, 64)
    assert found["image"] == small_models.IMAGE | {"depth": 2}
    with config.unlocked():
        config.model.head.select = "cls"
    with pytest.raises(
        WeightsError, match="reads the class token alone, which transformers' LLaVA"
    ):
        to_folder.sizes(resolve(config, "weights"), folder[0])
    with config.unlocked():
        config.model.head.select, config.model.head.stage = "patch", "normed"
    with pytest.raises(WeightsError, match="reads tokens of CLIP's tower before its last norm"):
        to_folder.sizes(resolve(config, "weights"), folder[0])


def run(capsys, *words):
    try:
        generate.main(words)
        code = 0
    except SystemExit as error:
        code = error.code
    return code, capsys.readouterr()


def test_the_command_prints_the_answer_or_one_line(folder, model, tmp_path, capsys, monkeypatch):
    Image.fromarray(pictures(1)[0]).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    monkeypatch.setattr("vlc_jax.tools.command.load.load", lambda path, **_: model)
    given = ("--model", str(folder[0]), "--image", str(tmp_path / "a.png"))
    code, printed = run(capsys, *given, "--prompt", QUESTION, "--max_tokens", "6")
    (expected,) = model.answers([tmp_path / "a.png"], [QUESTION], max_tokens=6)
    assert (code, printed.out) == (0, f"{expected}\n")
    for image, name in (("b.png", "b.png"), ("c.png", "c.png")):
        code, printed = run(capsys, *given[:3], str(tmp_path / image))
        assert (code, printed.out) == (3, "")
        assert name in printed.err
        assert printed.err.count("\n") == 1
    code, printed = run(capsys, *given, "--max_tokens", "0")
    assert code == 2
    assert "an integer of at least 1 is needed; got '0'" in printed.err
    code, printed = run(capsys, *given[:2])
    assert code == 2
    assert "the following arguments are required: --image" in printed.err


def captioner_of_scenes(more=""):
    """With random weights; and an image."""
    config = scenes_captioner.get_config(f"width=16,depth=1{more}")
    with config.unlocked():
        config.model.image, config.model.text = {"depth": 1}, {"depth": 1}
    setup = resolve(config, "weights")
    params = small_models.normal(setup.parameters.shapes, 0.5, seed=2)
    model = inference.Model(setup, {"params": params, "batch_stats": {}}, batch_size=8)
    return model, np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)


@pytest.mark.slow
def test_a_captioner_of_the_scenes_describes_an_image():
    model, image = captioner_of_scenes()
    found, other = model.answers([image, image], ["", "a red circle"], max_tokens=4)
    tokens = model._scorer(1).embed_images([image]).tokens
    setup, params = model._setup, model._variables["params"]
    decoder, valid = setup.model.head.language_model, np.ones(tokens.shape[:2], bool)
    read = {"params": params["head"]["lm"]}
    hidden = np.asarray(apply(decoder, read, tokens, valid)[0])
    best = np.asarray(apply(decoder, read, hidden[0, -1], method="logits")).argmax()
    assert found.split()[0] == setup.tokenizer.decode([int(best)])
    assert other != found
    assert set(f"{found} {other}".split()) <= {*setup.tokenizer.vocabulary(), "<unk>"}


def test_an_image_that_comes_with_a_question_is_asked_it_once():
    model, image = captioner_of_scenes(",question=1")
    said = ("is the red circle left of or right of the blue square", "what is there")
    plain = model.answers([image, image], said, max_tokens=4)
    with_image = [ImageQuestion(image, question) for question in said]
    assert model.answers(with_image, ["", ""], max_tokens=4) == plain
    assert "".join(model.stream(image, said[0], max_tokens=4)).strip() == plain[0]
    assert model.answers([], []) == []


def test_a_model_that_writes_nothing_is_refused():
    setup = resolve(tiny.get_config(), "eval")
    with pytest.raises(UsageError, match="the model 'clip' with the tokenizer 'scenes' writes no"):
        answers.Answers(setup)
