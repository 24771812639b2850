"""A config that contradicts itself or its ranges is refused with one line, before all else."""

import inspect
from types import SimpleNamespace

import pytest
from ml_collections import ConfigDict

from tests.support.numbered import Numbered
from vlc_jax.configs.scenes import clip, llava, vlm2vec
from vlc_jax.errors import UsageError
from vlc_jax.setup import resolve, validate


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "model.remat",
            "blocks",
            "unknown remat of the image tower 'blocks'; did you mean 'block'",
        ),
        ("optimizer.mu_dtype", "float16", "unknown mu_dtype 'float16'; .*float32, bfloat16"),
        ("steps", 10**30, "config.steps must be at most 2,147,483,647; got 1,000"),
        ("seed", 2**70, "config.seed must be at most 4,294,967,295; got 1,180"),
        ("seed", -1, "config.seed must be at least 0; got -1"),
        ("eval.batch_size", 10**30, "config.eval.batch_size must be at most 1,000"),
        ("examples", 0, "config.examples must be at least 1; got 0"),
        ("epochs", float("nan"), "config.epochs must be above 0; got nan"),
        ("losses", ConfigDict({"infonce": 5}), "config.losses.infonce holds the options of a loss"),
        ("batch_size", 0, "config.batch_size must be at least 1; got 0"),
        ("eval.every", -5, "config.eval.every must be at least 1; got -5"),
        ("eval.seconds", 0.0, "config.eval.seconds must be above 0; got 0.0"),
        ("eval.seconds", float("inf"), "config.eval.seconds must be a finite number; got inf"),
        ("lora.dropout", 1.0, "config.lora.dropout must be from 0 to below 1; got 1.0"),
        ("model.image.depth", 0, "model.image.depth must be a whole number from 1 on; got 0"),
        ("input.jitter.hue", 0.6, "config.input.jitter.hue must be from 0 to 0.5; got 0.6"),
        ("input.max_bad_share", 5.0, "config.input.max_bad_share must be from 0 to 1; got 5.0"),
        ("input.positives.generators.from_record", -1.0, "from_record must be at least 0; got -1"),
        ("evals.scenes_retrieval.count", 0, "count must be a whole number from 1 on; got 0"),
        ("evals.scenes_retrieval.chunk", 2.5, "chunk must be a whole number from 1 on; got 2.5"),
        ("optimizer.learning_rate", float("nan"), "learning_rate must be at least 0; got nan"),
        ("optimizer.spike_guard", (10.0,), r"spike_guard is \(factor above 1, steps\)"),
        ("optimizer.spike_guard", (1.0, 5), r"or \(\) for none; got \(1\.0, 5\)"),
        ("optimizer.spike_guard", (10.0, 0.5), "such as"),
        ("optimizer.spike_guard", (float("nan"), 5), "such as"),
        ("optimizer.spike_guard", (10.0, float("inf")), "such as"),
        ("optimizer.spike_guard", ("a", True), "such as"),
        ("evals", ConfigDict({"a" * 300: {}}), "a names a folder of results: at most 200 letters"),
        ("evals", ConfigDict({"retrieval": 5}), "evals.retrieval holds the options of a benchmark"),
        ("pretrain", ConfigDict({"steps": 5}), "config.pretrain is the complete config of a run"),
        ("input.negatives", ConfigDict({"count": 1}), "input.negatives has no 'generators'"),
        ("input.crop_scale", (0.5,), r"crop_scale is \(smallest area, largest area\); got"),
        ("optimizer.learning_rate_multipliers", (("a",),), r"is \(\(regex, factor\), \.\.\.\)"),
        ("optimizer.learning_rate_multipliers", (("(", 2.0),), "no regular expression: missing"),
        ("optimizer.decay_exclude", "*", "decay_exclude: '\\*' is no regular expression"),
        ("frozen", ("image/[",), "config.frozen: 'image/\\[' is no regular expression"),
        ("lora.targets", "(", r"config.lora.targets: '\(' is no regular expression"),
        ("init_from", "ftp://bucket/run", "config.init_from: ftp://bucket/run: addresses begin"),
        ("eval.cache", "s3://b/c", "config.eval.cache is s3://b/c: it must be a folder on a local"),
        ("evals.scenes_retrieval.split", "hf://x", "evals.scenes_retrieval.split: hf://x: addr"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(field, value, message):
    config = clip.get_config()
    with config.unlocked():
        *path, last = field.split(".")
        node = config
        for key in path:
            node = node[key]
        node[last] = value
    with pytest.raises(UsageError, match=message):
        resolve(config, "eval")


def test_a_resnet_is_not_trained_from_scratch():
    config = clip.get_config()
    config.model.variant, config.model.image = "RN50", ConfigDict()
    config.input.image_size = 64
    with pytest.raises(UsageError, match=r"RN50 has stored statistics.* set config\.init_from"):
        resolve(config, "train")
    assert resolve(config, "eval").model.image.stages == (3, 4, 6, 3)


def test_steps_below_one_are_named_before_the_warmup_that_follows_from_them():
    config = clip.get_config()
    config.steps, config.optimizer.warmup_steps = -4, -1
    with pytest.raises(UsageError, match=r"config\.steps must be at least 1; got -4"):
        validate.check(config, "train")


@pytest.mark.parametrize(("batch_size", "sub_batches"), [(1, 1), (8, 8)])
def test_a_batch_of_one_pair_has_nothing_to_contrast(batch_size, sub_batches):
    config = clip.get_config()
    config.batch_size, config.sub_batches = batch_size, sub_batches
    with pytest.raises(
        UsageError, match="for the loss infonce, which contrasts pairs; take at least"
    ):
        validate.check(config, "train")
    validate.check(config, "eval")
    config.batch_size = 2 * batch_size
    validate.check(config, "train")


def test_a_distance_summed_over_the_batch_is_not_one_of_its_parts():
    config = clip.get_config()
    with config.unlocked():
        config.losses.distill = {"weight": 0.005}
    validate.check_pairs(config)
    config.sub_batches = 2
    with pytest.raises(UsageError, match=r"distill is a sum over the whole batch.*sub_batches=2"):
        validate.check_pairs(config)


def test_rows_of_one_pair_have_nothing_to_contrast_whatever_the_name_of_the_loss():
    config = clip.get_config()
    config.input.hard_images = 1
    config.batch_size = 2
    with config.unlocked():
        config.losses = {"x": {"loss": "infonce", "weight": 1.0, "rows": (0, 2)}}
    with pytest.raises(
        UsageError, match="loss x, which contrasts pairs; take at least batch_size=4"
    ):
        validate.check_pairs(config)
    config.batch_size = 4
    validate.check_pairs(config)


@pytest.mark.parametrize(
    ("reader", "options", "message"),
    [
        ("scenes_order", {"tie": "strct"}, r"evals\.x: tie must be one of .*; got 'strct'"),
        ("scenes_retrieval", {"tie": "strct"}, "tie must be one of"),
        ("scenes_retrieval", {"duplicates": "maybe"}, "duplicates must be one of"),
        ("scenes_order", {"vqascore": {"end": False}}, "unknown option of vqascore 'end'"),
        ("scenes_order", {"vqascore": True}, "vqascore is a mapping of some of"),
        ("scenes_order", {"vqascore": {"question": "Is it?"}}, r"got 'Is it\?'"),
        ("scenes_whatsup", {"protocol": "keywords", "vqascore": {}}, "has questions of its own"),
        ("scenes_whatsup", {"protocol": "keywords", "decoding": "m3d"}, "did you mean 'm3id'"),
        ("scenes_whatsup", {"protocol": "keywords", "max_tokens": 0}, "max_tokens is at least 1"),
        ("mmvp", {"protocol": "multiple_choice", "answer": "letter"}, "did you mean 'letters'"),
        ("mmvp", {"protocol": "multiple_choice", "decoding": "perplexty"}, "mean 'perplexity'"),
        ("mmvp", {"protocol": "multiple_choice", "tie": "strct"}, "tie must be one of"),
        # of a model without questions and answers
        ("scenes_whatsup", {"protocol": "keywords"}, r"evals\.x: .*this model writes nothing"),
        ("mmvp", {"protocol": "multiple_choice"}, "and this model cannot"),
        (
            "mmvp",
            {"protocol": "multiple_choice", "decoding": "greedy"},
            "this model writes nothing",
        ),
        ("scenes_order", {"vqascore": {}}, "and this model cannot"),
        ("scenes_order", {"negation": {"strenght": 1}}, "unknown option of negation 'strenght'"),
    ],
)
def test_a_protocol_that_evaluation_would_refuse_is_refused_before_training(
    reader, options, message
):
    config = clip.get_config()
    config.evals = ConfigDict({"x": {"reader": reader, **options}})
    with pytest.raises(UsageError, match=message):
        resolve(config, "train")
    resolve(config, "weights")  # which evaluates nothing


def test_negation_and_segments_are_for_models_whose_score_is_a_cosine():
    config = clip.get_config()
    config.evals = ConfigDict({"scenes_negation": {"negation": {"strength": 8, "phrase": "a {}"}}})
    assert resolve(config, "eval").evaluation.benchmarks.keys() == {"scenes_negation"}
    config.model.name = "pacl"
    for option in ({"negation": True}, {"segments": "crops"}):
        config.evals = ConfigDict({"scenes_negation": option})
        with pytest.raises(UsageError, match=r"evals\.scenes_negation: .* no dot product"):
            resolve(config, "eval")


def test_a_model_that_answers_may_be_asked():
    config = llava.get_config()
    config.evals = ConfigDict(
        {
            "words": {"reader": "scenes_whatsup", "protocol": "keywords", "decoding": "m3id"},
            "vqascore": {"reader": "scenes_order", "vqascore": {"eos": False}},
        }
    )
    assert resolve(config, "eval").evaluation.benchmarks.keys() == {"words", "vqascore"}


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ({"gone": {"weight": 1.0}}, "unknown loss 'gone'"),
        ({"infonce": {"weight": 1.0, "directon": "both"}}, "did you mean 'direction'"),
        ({"infonce": {"weight": 1.0, "direction": "text_to_image"}}, "unknown direction"),
        ({"infonce": {"weight": -1.0}}, "needs a weight from 0 on"),
        ({"infonce": {"weight": 0.0}}, "needs a loss with a weight above 0"),
        ({}, r"such as config.losses = {'infonce': {'weight': 1.0}}; got \{\}"),
        ({"infonce": {"weight": 1.0, "implementation": "chunked"}}, "and chunk None"),
        ({"infonce": {"weight": 1.0, "duplicates": "masks"}}, "did you mean 'mask'"),
        ({"infonce": {"weight": 1.0, "rows": (0, 2)}}, r"hard_images = 1, or .*; got \(0, 2\)"),
        ({"hn_focal": {"weight": 1.0, "gamma": 0.5}}, "gamma of hn_focal is 0 or at least 1"),
    ],
)
def test_options_of_losses_are_refused_before_anything_is_traced(losses, message):
    config = clip.get_config()
    config.losses = ConfigDict(losses)
    with pytest.raises(UsageError, match=message):
        resolve(config, "train")
    validate.check(config, "eval")  # which needs no loss


def test_no_clipping_is_zero_or_none():
    for value in (0.0, None):
        config = clip.get_config()
        config.optimizer.clip_norm = value
        validate.check(config, "eval")


def test_records_without_an_image_are_for_models_that_read_a_text_alone():
    source, config = Numbered(), llava.get_config()
    source.has_text_only = True

    def check(config, source=source):
        setup = resolve(config, "weights")
        validate.check_text_only(config, source, setup.tokenizer, setup.model)

    check(config)
    with pytest.raises(UsageError, match="which only captioner and vlm2vec read: leave them out"):
        check(clip.get_config())
    check(clip.get_config(), Numbered())
    with config.unlocked():
        config.model.head.prefix = (1, 2)
    with pytest.raises(UsageError, match=r"write config\.model\.head\.prefix as a text"):
        check(config)
    config = llava.get_config()
    config.input.question = "what is {}"
    with pytest.raises(UsageError, match=r"that a captioner reads without; got 'what is \{\}'"):
        check(config)
    config = vlm2vec.get_config()
    config.input.text_only_question = "find {}"
    check(config)
    config.input.text_only_question = ""
    with pytest.raises(UsageError, match="which asks a question of every record"):
        check(config)


@pytest.mark.parametrize(("side", "warned"), [(33, True), (32, False)])
def test_pixels_beyond_the_last_patch_are_warned_of(side, warned, caplog):
    tower = SimpleNamespace(image_size=side, patch_size=8)
    inspect.unwrap(validate.warn_of_cut_images)(tower)
    cure = "the last 1 rows and columns of every image are not read; take 32 or 40"
    assert (cure in caplog.text) == warned
