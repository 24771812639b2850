"""Every shipped config is built and evaluated by shape; what its arguments change."""

import importlib

import jax
import pytest
from ml_collections import ConfigDict

from tests.support.configs import CASES, commands, load
from vlc_jax import evaluators, models
from vlc_jax.configs.common import arguments
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.setup import data, resolve
from vlc_jax.setup.model import learning_rate
from vlc_jax.setup.state import state_shapes

_SHAPED: set[str] = set()
_INIT = jax.jit(models.init, static_argnums=0)


@pytest.mark.parametrize("case", CASES)
def test_config_has_a_command_on_top_and_only_known_names(case, tmp_path):
    config = load(case, tmp_path)
    is_default = case == "configs/default.py"
    assert is_default or any(each.startswith(case) for each in commands(case.partition(":")[0]))
    assert config.is_locked
    for name, options in config.evals.items():
        protocol = benchmarks.protocol_of(options.get("reader", name))
        evaluators.protocol(protocol, options.get("protocol", ""))


@pytest.mark.parametrize("case", CASES)
def test_state_of_the_full_config_has_its_shapes(case, tmp_path, monkeypatch):
    # Under jit a model is traced once, not by each of the three calls that initialise it below.
    monkeypatch.setattr(models, "init", _INIT)
    config = load(case, tmp_path)
    sizes = (config.input.image_size, config.text.context_length, config.text.tokenizer)
    key = (config.model, config.lora, config.frozen, sizes)
    if str(key) in _SHAPED:  # as another config's
        return
    _SHAPED.add(str(key))
    setup = resolve(config, "eval")
    params = setup.parameters.shapes
    frozen = setup.parameters.split(params)[1]
    shapes = state_shapes(setup, frozen)
    count = setup.parameters.count(frozen, shapes.params)
    assert count["total"] == sum(x.size for x in jax.tree.leaves(params))
    expected = sum(x.size for x in jax.tree.leaves(shapes.params))
    assert count["trained"] == expected
    if not config.lora.targets:
        parts = {"image": count["image"], "text": count.get("text"), "logit_scale": 1}
        if "lm" in params.get("head", {}):
            parts["head/lm"] = sum(x.size for x in jax.tree.leaves(params["head"]["lm"]))
        if "functional_words" in params.get("head", {}):
            parts["head/functional_words"] = params["head"]["functional_words"].size
        assert count["total"] - expected == sum(parts[rule] for rule in config.frozen)
    moments = [x for x in jax.tree.leaves(shapes.opt_state) if x.ndim]
    assert sum(x.size for x in moments) >= 2 * (expected - 10)


@pytest.mark.parametrize("head", ["clip", "pacl"])
@pytest.mark.parametrize("tower", ["locked", "unlocked"])
def test_a_run_on_vectors_freezes_no_text_tower(head, tower):
    name = importlib.import_module("vlc_jax.configs.scenes.text_vectors")
    config = name.get_config(f"head={head},image_tower={tower},connector=llm2clip,vectors=x.npy")
    towers, scale = ("image",) * (tower == "locked"), ("logit_scale",) * (head == "pacl")
    assert config.frozen == towers + scale
    assert (config.model.name, config.model.text.connector) == (head, "llm2clip")
    with pytest.raises(ValueError, match="head is one of clip, pacl; got 'dcsm'"):
        name.get_config("head=dcsm")


@pytest.mark.parametrize(("variant", "size"), [("EVA02-B/16", 224), ("EVA02-L/14-336", 336)])
def test_zero_shot_knows_eva02_by_its_variant_alone(variant, size, tmp_path):
    config = load("configs/eval/zero_shot.py", tmp_path, f",variant={variant},size={size}")
    model = resolve(config, "eval").model
    assert (model.image.activation, model.text.activation) == ("swiglu", "gelu")
    assert (model.image.epsilon, model.text.epsilon) == (1e-6, 1e-5)
    assert (model.image.rope, model.image.grid) == ("qk_2d", size // model.image.patch_size)


def test_every_protocol_of_llava_is_for_its_sets():
    make = importlib.import_module("vlc_jax.configs.eval.llava").get_config
    config = make("path=x,root=r,sets=whatsup_a+mmvp_vlm+winoground+scenes_whatsup")
    kinds = {"whatsup_a": {"keywords", "m3id_t0", "m3id_t1", "vqascore"}}
    kinds["mmvp_vlm"] = {"letters", "options", "written", *kinds["whatsup_a"] - {"keywords"}}
    kinds |= {name: {"vqascore"} for name in ("winoground", "scenes_whatsup")}
    expected = {f"{name}_{kind}" for name, found in kinds.items() for kind in found}
    assert set(config.evals) == expected
    for options in config.evals.values():
        protocol = benchmarks.protocol_of(options.reader)
        known = evaluators.protocol_options(protocol, options.get("protocol", ""))
        assert set(options) - {"reader", "root", "texts", "split", "world", "count"} <= {*known}
    config = make("path=x,sets=scenes_negation,protocols=score")
    assert [*config.evals] == ["scenes_negation_score"]
    for argument, message in (
        ("sets=whatsup_a", r"path=\.\.\. \(the model\) and sets="),
        ("path=x,sets=whatsup", "did you mean 'whatsup_"),
        ("path=x,sets=mmvp,protocols=keyword", "did you mean 'keywords'"),
        ("path=x,sets=mmvp,protocols=keywords", "protocol keywords is for coco_spatial_one"),
    ):
        with pytest.raises(ValueError, match=message):
            make(argument)


def config_of(name: str, argument: str = "") -> ConfigDict:
    return importlib.import_module(f"vlc_jax.configs.{name}").get_config(argument)


def coco(name: str, argument: str = "") -> ConfigDict:
    return config_of(name, f"data=coco,{argument}")


def test_without_weight_there_are_no_hard_negatives():
    config = coco("hp_hn", "hn_weight=0")
    assert set(config.losses) == {"infonce", "analogy"}
    assert (config.input.negatives.count, config.input.positives.count) == (0, 1)
    assert coco("hp_hn", "hn_weight=0.25").losses.svlc_negative.weight == 0.25
    assert set(coco("hn").losses) == {"infonce", "svlc_negative"}


def test_models_of_one_kind_have_positives_and_negatives_of_that_kind_alone():
    """Section 5.2 of Kamath et al. 2024."""
    kinds = {
        "coco": ({"crepe_swap"}, {"swap"}, {"crepe_replace"}, {"replace"}),
        "scenes": (
            *({"scenes_swap", "scenes_reverse"}, {"scenes_reorder"}),
            *({"scenes_replace"}, {"scenes_synonym"}),
        ),
    }
    for where, generators in kinds.items():
        made = []
        for kind in ("swap", "replace"):
            config = config_of("hp_hn", f"data={where},kind={kind}")
            made += [set(config.input.negatives.generators), set(config.input.positives.generators)]
            assert config.input.positives.fallback == "skip"
        assert tuple(made) == generators


def test_crepe_has_the_negatives_of_its_kind_alone():
    for kind in ("swap", "replace", "negate"):
        config = coco("crepe", f"kind={kind}")
        assert set(config.input.negatives.generators) == {f"crepe_{kind}"}
    config = config_of("crepe", "kind=negate")
    assert set(config.input.negatives.generators) == {"scenes_negate"}


def test_where_captions_say_synonyms_negatives_are_common_words():
    for world, draw in (("scenes-mini", "uniform_word_list"), ("scenes-synonyms", "base_words")):
        config = config_of("hn", f"world={world}")
        assert config.input.negatives.options.scenes_replace.draw == draw
        assert config.pretrain.input.scenes.world == world


def test_weights_below_zero_are_refused():
    for where in ("coco", "scenes"):
        for weight in ("-1", "nan", "inf"):
            with pytest.raises(ValueError, match="a number from 0 on"):
                config_of("hp_hn", f"data={where},hn_weight={weight}")


def test_files_of_positives_are_refused_beside_a_prepared_folder(tmp_path):
    with pytest.raises(ValueError, match="names a prepared folder"):
        coco("hp_hn", f"path={tmp_path},replace_hp=replace_hp.jsonl")
    with pytest.raises(ValueError, match="swap_hp goes with kind=both or kind=swap"):
        coco("hp_hn", "kind=replace,path=captions.json,swap_hp=swap_hp.jsonl")


def test_the_schedule_of_svlcs_code_never_reaches_its_peak():
    steps = 5 * 591_753 // 512
    rates = learning_rate(coco("hp_hn", "schedule=svlc_parity"), steps)
    assert rates(steps - 1) == pytest.approx(5e-6 * steps / 10_000)
    assert max(learning_rate(coco("hp_hn"), steps)(s) for s in (0, 577, 5000)) == 5e-6


def test_hard_positives_of_files_belong_to_cocos_captions():
    config = coco("hp_hn", "path=annotations/captions_train2017.json,swap_hp=swap_hp.jsonl")
    options = data.source_options(config)
    assert options["source"] == "coco"
    assert options["positives"] == {"replace": None, "swap": "swap_hp.jsonl"}


def test_svlc_trains_adapters_alone_unless_told_otherwise():
    assert coco("svlc", "lora=false,negatives=rule").lora.targets == ""
    assert coco("svlc_pos", "negatives=rule").lora.targets
    assert set(coco("svlc", "in_batch,negatives=rule").losses) == {"negclip", "svlc_negative"}
    assert "analogy_symmetric" in coco("svlc_pos", "symmetric,negatives=rule").losses
    texts = coco("svlc", "language_model=folder").input.negatives
    assert texts.generators.to_dict() == {"svlc_rule": 1.0, "svlc_fill_mask": 1.0}
    assert texts.options.svlc_fill_mask.model == "folder"


def test_dac_has_a_negative_of_the_caption_and_one_of_each_sentence():
    config = coco("dac", "negatives=rule")
    assert (config.input.negatives.count, config.input.negatives.of_positives) == (1, 1)
    assert config.input.positives.count == 10
    assert config.losses.svlc_negative.negative_range == (0, 1)
    assert config.losses.dac_negative_bag.negative_range == (1, None)
    config = coco("dac", "negatives=rule,in_batch")
    assert config.losses.negclip.negative_range == (0, 1)


def test_left_and_right_on_siglip():
    config = coco("leftright", "family=siglip,image_tower=unlocked")
    assert set(config.losses) == {"sigmoid_negatives"}
    assert (config.frozen, config.model.logit_scale_max) == ((), None)
    assert coco("leftright").frozen == ("image",)


def test_left_and_right_on_siglip_of_the_scenes_starts_from_one():
    config = config_of("leftright", "family=siglip,world=scenes-hues")
    assert set(config.losses) == {"sigmoid_negatives"}
    assert (config.pretrain.input.scenes.world, [*config.pretrain.losses]) == (
        "scenes-hues",
        ["sigmoid"],
    )
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
                assert config.text.vectors.path == "x.npy"
                assert config.model.text.to_dict() == {"connector": "mlp2x_gelu"}
                with config.unlocked(), tower.unlocked():
                    config.text = tower.text
                    config.model.text = tower.model.text
                assert config.to_dict() == tower.to_dict()
                o = config.optimizer
                assert (o.learning_rate, o.weight_decay, o.warmup_steps) == (5e-6, 0.0, 50)
                assert (config.batch_size, config.epochs, o.schedule) == (512, 5.0, "cosine")
    assert llava("llm2vec", "path=a.json+b.json").input.llava.answers == "joined"
    with pytest.raises(ValueError, match="prepare them with the data"):
        llava("llm2vec", "path=a.json,negatives=leftright")


def control(argument: str) -> ConfigDict:
    return llava("clip_ft", argument)


def left_right(argument: str) -> ConfigDict:
    return coco("leftright", argument)


def test_patches_are_trained_as_the_authors_code_does():
    for name in ("pacl", "sparc"):
        config = llava(name, "path=a/x.json+b/y.json")
        found = (config.optimizer.learning_rate, config.optimizer.b2, config.optimizer.weight_decay)
        assert found == (1e-4, 0.999, 0.0)
        assert (config.optimizer.schedule, config.optimizer.warmup_steps) == ("constant", 0)
        assert (config.epochs, config.batch_size) == (10.0, 4096)
        assert config.model.logit_scale_init == 10.0
        assert "logit_scale" in config.frozen
        assert (config.input.image_size, config.input.crop) == (336, "none")
        assert config.input.normalisation == "imagenet"
        training, judged = (data.image_transform(config, each) for each in (True, False))
        assert (training.brightness, training.hue) == (0.2, 0.1)
        assert (judged.brightness, judged.hue) == (0.0, 0.0)
        assert config.frozen == ("image", "text", "logit_scale")
        assert config.input.llava.to_dict() == {
            "annotations": "a/x.json+b/y.json",
            "images": "a+b",
            "answers": "each",
            "text_only": False,
        }
        assert config.input.noun_phrases.share == 0.5
    assert llava("pacl").model.head.pooling == "own_caption"
    assert not llava("sparc").model.head.mask_global_text
    assert {k: v.weight for k, v in llava("sparc").losses.items()} == {
        "infonce": 0.5,
        "sparc_local": 1.0,
    }


def test_switches_of_heads_are_the_same_on_the_scenes_and_on_captions():
    for name in ("pacl", "sparc"):
        for where in ("llava", "coco", "scenes"):
            data = f"data={where}"
            plain = ",hard_images=0" if where == "scenes" else ""
            switches = f"rope=feature_2d,negatives=leftright,temperature=learned{plain}"
            config = config_of(name, f"{data},{switches}")
            assert config.model.head.rope == "feature_2d"
            assert "logit_scale" not in config.frozen
            assert config.input.negatives.generators.to_dict() == {"left_right": 1.0}
            assert "negclip" in config.losses
            config = config_of(name, f"{data},rope=qk_2d,image_tower=unlocked")
            assert config.model.image.rope == "qk_2d"
            assert "rope" not in config.model.head
            assert config.frozen == ("text", "logit_scale")


def test_left_and_right_of_exchanged_pictures_are_refused_on_the_scenes():
    with pytest.raises(ValueError, match="say hard_images=0"):
        config_of("pacl", "negatives=leftright")


def test_vectors_of_texts_take_the_place_of_the_text_tower():
    for where in ("llava", "scenes"):
        whole = ",noun_phrases=0" if where == "llava" else ""
        config = config_of("pacl", f"data={where},text_encoder=a/texts.npy{whole}")
        assert (config.text.tokenizer, config.text.vectors.path) == ("vectors", "a/texts.npy")
        assert (config.model.text.connector, config.frozen) == (
            "none",
            ("image", "logit_scale"),
        )
    with pytest.raises(ValueError, match="say noun_phrases=0"):
        llava("pacl", "text_encoder=a/texts.npy")


def test_dcsm_in_the_mode_of_its_authors():
    for where in ("coco", "scenes"):
        authors, clean = (
            config_of("dcsm", f"data={where},mode={mode},blocks=3") for mode in ("authors", "clean")
        )
        assert (authors.text.functional_words.position, clean.text.functional_words.position) == (
            "word",
            "token",
        )
        assert authors.model.head.standardise == "tensor"
        assert clean.model.head.standardise == "running"
        assert authors.model.head.dropout == 0.1
        assert (authors.batch_size, authors.sub_batches, authors.input.hard_images) == (48, 3, 1)
        of_text = config_of("dcsm", f"data={where},opposite=text,blocks=3")
        assert (of_text.batch_size, of_text.input.hard_images) == (24, 0)
        assert of_text.losses.to_dict().keys() == {"negclip"}
        assert of_text.losses.negclip.weight == 2.0
        assert of_text.input.negatives.count == 1
        without = config_of("dcsm", f"data={where},functional=none")
        assert without.model.head["num_functional_words"] == 0
        assert without.text.functional_words.words == ()
    assert coco("dcsm").text.context_length == 30


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [
        ("dcsm", "mode=x", "mode is one of authors, clean; got 'x'"),
        ("dcsm", "opposite=none", "opposite is one of image, text"),
        ("dcsm", "functional=x", "functional is one of rows, none"),
        ("pacl", "pooling=mean", "pooling is one of own_caption, pairwise, uniform"),
        ("pacl", "rope=qk_2d", "inside the image tower.*image_tower=unlocked"),
        ("sparc", "rope=3d", "rope is one of none, feature_1d"),
        ("leftright", "negatives=x", "negatives is one of leftright, none"),
        ("negclip", "negatives=x", "negatives is one of given, negclip"),
        ("svlc", "negatives=x", "negatives is one of both, rule, fill_mask"),
        ("dac", "", "language_model=FOLDER"),
        ("svlc", "", "negatives=both.*language_model=FOLDER.*or negatives=rule"),
        ("hn", "schedule=x", "schedule is one of cosine, svlc_parity"),
        ("leftright", "family=x", "family is one of clip, siglip"),
        ("leftright", "image_tower=x", "image_tower is one of locked, unlocked"),
    ],
)
def test_a_choice_that_a_method_has_not_is_an_error(name, argument, words):
    with pytest.raises(ValueError, match=words):
        coco(name, argument)


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
