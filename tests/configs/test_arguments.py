"""Arguments of configs: what goes together, what is refused."""

import importlib

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests.support.configs import coco, config_of
from vlc_jax.configs import default
from vlc_jax.configs.common import arguments
from vlc_jax.errors import UsageError
from vlc_jax.setup import data
from vlc_jax.setup.model import learning_rate


def test_the_schedule_of_svlcs_code_never_reaches_its_peak():
    steps = 5 * 591_753 // 512
    rates = jax.jit(learning_rate(coco("hp_hn", "schedule=svlc_parity"), steps))
    assert rates(steps - 1) == pytest.approx(5e-6 * steps / 10_000)
    rates = jax.jit(jax.vmap(learning_rate(coco("hp_hn"), steps)))
    assert rates(np.array([0, 577, 5000])).max() == pytest.approx(5e-6)


def test_hard_positives_of_files_belong_to_cocos_captions():
    config = coco("hp_hn", "path=annotations/captions_train2017.json,swap_hp=swap_hp.jsonl")
    options = data.source_options(config)
    assert options["source"] == "coco"
    assert options["positives"] == {"swap": "swap_hp.jsonl"}


def test_siglip_of_the_scenes_starts_from_a_model_with_its_scale():
    config = config_of("leftright", "family=siglip")
    assert config.model.to_dict() == config.pretrain.model.to_dict()


def llava(name: str, argument: str = "") -> ConfigDict:
    if name in ("pacl", "sparc"):
        return config_of(name, f"data=llava,{argument}")
    return config_of(f"llava.{name}", argument)


def test_a_control_differs_from_left_and_right_in_its_negatives_alone():
    for family, losses in (("clip", ("infonce", "negclip")), ("siglip", ("sigmoid",) * 2)):
        plain, hard = (module(f"family={family}") for module in (control, left_right))
        assert [*plain.losses] == [losses[0]]
        assert next(iter(hard.losses)).startswith(losses[1])
        with plain.unlocked(), hard.unlocked():
            assert (plain.input.negatives.count, hard.input.negatives.count) == (0, 1)
            plain.losses, hard.losses = ConfigDict(), ConfigDict()
            plain.input.negatives = hard.input.negatives
        assert plain.to_dict() == hard.to_dict()


def test_vectors_of_a_language_model_are_trained_against_as_the_text_tower_is():
    """But for the texts and the towers, the config is that of left and right."""
    for family in ("clip", "siglip"):
        for lock in ("locked", "unlocked"):
            for negatives in ("none", "leftright"):
                argument = f"family={family},image_tower={lock},negatives={negatives},path=x"
                config = llava("llm2vec", f"{argument},vectors=x.npy")
                tower = left_right(f"{argument},answers=joined")
                assert config.frozen == (("image",) if lock == "locked" else ())
                assert config.text.tokenizer_options.path == "x.npy"
                assert config.model.text.to_dict() == {"connector": "mlp2x_gelu"}
                with config.unlocked(), tower.unlocked():
                    config.text = tower.text
                    config.model.text = tower.model.text
                assert config.to_dict() == tower.to_dict()
                o = config.optimizer
                assert (o.learning_rate, o.weight_decay, o.warmup_steps) == (5e-6, 0.0, 50)
                assert (config.batch_size, config.epochs, o.schedule) == (512, 5.0, "cosine")
    assert llava("llm2vec", "path=a.json+b.json").input.source_options.answers == "joined"


def control(argument: str) -> ConfigDict:
    return llava("clip_ft", argument)


def left_right(argument: str) -> ConfigDict:
    return coco("leftright", argument)


@pytest.mark.parametrize("name", ["pacl", "sparc"])
@pytest.mark.parametrize("where", ["llava", "coco", "scenes"])
def test_switches_of_heads_are_the_same_on_the_scenes_and_on_captions(name, where):
    plain = ",hard_images=0" if where == "scenes" else ""
    switches = f"rope=feature_2d,negatives=leftright,temperature=learned{plain}"
    config = config_of(name, f"data={where},{switches}")
    assert config.model.head.rope == "feature_2d"
    assert "logit_scale" not in config.frozen
    assert set(config.input.negatives.generators) == {"left_right"}
    assert "negclip" in config.losses
    config = config_of(name, f"data={where},rope=qk_2d,image_tower=unlocked")
    assert config.model.image.rope == "qk_2d"
    assert "rope" not in config.model.head
    assert config.frozen == ("text", "logit_scale")


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [
        ("pacl", "rope=qk_2d", "inside the image tower.*image_tower=unlocked"),
        ("dac", "", "language_model=FOLDER"),
        ("svlc", "", "negatives=both.*language_model=FOLDER.*or negatives=rule"),
        ("hp_hn", "path=prepared,replace_hp=r.jsonl", "names a prepared folder"),
        ("dac", "negatives=rule,dense=d,image_folder=i", "captions, dense and image_folder go tog"),
        ("dcsm", "pairs=p,path=t.jsonl", "pairs=p is the data: leave out path=t.jsonl"),
        ("hp_hn", "kind=replace,path=c.json,swap_hp=s.jsonl", "swap_hp goes with kind=both or"),
        ("pacl", "text_encoder=a/texts.npy", "say noun_phrases=0"),
    ],
)
def test_arguments_that_do_not_go_together_are_an_error(name, argument, words):
    with pytest.raises(ValueError, match=words):
        coco(name, argument)


def test_left_and_right_of_exchanged_pictures_are_refused_on_the_scenes():
    with pytest.raises(ValueError, match="say hard_images=0"):
        config_of("pacl", "negatives=leftright")


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [
        ("hp_hn", "data=cc3m", "data is one of scenes, coco; got 'cc3m'"),
        ("hp_hn", "weights=x", "'weights' is of data=coco, not of data=scenes; known: base, data"),
        ("hp_hn", "data=coco,world=x", "'world' is of data=scenes, not of data=coco; known: batch"),
        ("pacl", "validation=x", "'validation' is of data=coco and data=llava, not of data=scenes"),
        ("hp_hn", "data=coco,hn_wieght=1", "did you mean 'hn_weight'"),
        ("crepe", "kind=negat", "kind is one of swap, replace, negate; got 'negat'"),
    ],
)
def test_an_argument_that_the_data_has_not_is_an_error_of_one_line(name, argument, words):
    with pytest.raises(ValueError, match=words) as caught:
        config_of(name, argument)
    assert len(str(caught.value).splitlines()) == 1


def test_arguments_are_parsed_by_the_types_of_their_defaults():
    parsed = arguments.parse("steps=20,flag,share=.5", steps=1, flag=False, share=0.1, path="a")
    assert vars(parsed) == {"steps": 20, "flag": True, "share": 0.5, "path": "a"}
    given = arguments.parse({"steps": 20, "flag": True}, steps=1, flag=False, share=0.5, path="a")
    assert given == parsed
    kinds = {"side": arguments.OneOf("left", "right"), "count": arguments.OneOf(1, 2)}
    assert vars(arguments.parse("count=2", **kinds)) == {"side": "left", "count": 2}
    with pytest.raises(ValueError, match="count is one of 1, 2; got 3"):
        arguments.parse({"count": 3}, **kinds)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("step=3", "did you mean 'steps'"),
        ("steps=x", "steps is a int; got 'x'"),
        ("flag=maybe", "flag is true or false"),
        ("flag,steps=2,flag=false", "'flag' is there twice: leave one out"),
        ({"step": 3}, "did you mean 'steps'"),
        ({"steps": "3"}, "steps is a int; got '3'"),
    ],
)
def test_a_wrong_argument_is_an_error(argument, words):
    with pytest.raises(ValueError, match=words):
        arguments.parse(argument, steps=1, flag=False)


def test_the_world_of_clip_is_that_of_its_texts_and_benchmarks():
    config = importlib.import_module("vlc_jax.configs.scenes.clip").get_config("world=scenes-hues")
    worlds = [config.input.scenes.world, config.text.scenes.world]
    worlds += [options.world for options in config.evals.values()]
    assert set(worlds) == {"scenes-hues"}


def test_options_of_scenes_reach_the_source():
    config = importlib.import_module("vlc_jax.configs.default").get_config()
    with config.unlocked():
        config.input.scenes.captions = 1
        config.input.scenes.world_options = {"colour_jitter": 20.0}
        config.input.scenes.caption_options = {"colour": 1.0, "relation": 1.0}
        config.input.scenes.hard_images = (("relation", 1.0),)
    source = data.source(config, "train")
    assert source.world.colour_jitter == 20.0
    assert source.style.colour == 1.0
    assert [source.find(id).id for id in source[0].hard_images] == [f"{source[0].id}~relation"]


def test_jpegs_are_decoded_fast_in_training_alone():
    config = default.get_config()
    config.input.crop = "random_resized_fast"
    crops = [data.image_transform(config, each).crop for each in (True, False)]
    assert crops == ["random_resized_fast", "centre"]
    config.input.eval_crop = config.input.crop
    with pytest.raises(UsageError, match="crop of evaluation"):
        data.image_transform(config, is_training=False)


def test_colours_are_jittered_in_training_alone():
    config = llava("pacl", "path=a.json")
    training, judged = (data.image_transform(config, each) for each in (True, False))
    assert (training.brightness, training.hue) == (0.2, 0.1)
    assert (judged.brightness, judged.hue) == (0.0, 0.0)
