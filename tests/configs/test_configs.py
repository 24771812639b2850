"""Every shipped config is built and evaluated by shape; what its arguments change."""

import importlib
import re

import jax
import pytest
from ml_collections import ConfigDict

from tests.support.configs import CASES, coco, commands, config_of, load
from tests.support.marks import slow_but
from vlc_jax import evaluators, models
from vlc_jax.configs.common.classification import MEAN
from vlc_jax.input_pipeline import benchmarks, lookup
from vlc_jax.setup import data, resolve
from vlc_jax.setup.state import state_shapes

MAX_FIELDS = 110  # of configs/default.py; options of one source, tokenizer or head are no fields
_SHAPED: set[str] = set()
_INIT = jax.jit(models.init, static_argnums=0)


@pytest.mark.parametrize("case", CASES)
def test_config_has_a_command_on_top_and_only_known_names(case, tmp_path):
    config = load(case, tmp_path)
    is_default = case == "configs/default.py"
    assert is_default or any(each.startswith(case) for each in commands(case.partition(":")[0]))
    assert config.is_locked
    # --config.steps=4 can be parsed, also where epochs or examples are set
    assert [config.get_type(name) for name in ("steps", "epochs", "examples")] == [int, float, int]
    for name, options in config.evals.items():
        protocol = benchmarks.protocol_of(options.get("reader", name))
        evaluators.protocol(protocol, options.get("protocol", ""))


def test_the_default_config_stays_small():
    def fields(value):
        return sum(map(fields, value.values())) if isinstance(value, ConfigDict) and value else 1

    assert fields(config_of("default")) <= MAX_FIELDS


def has_its_like(case):
    """Whether a config in `make test` has the same kind of parameters."""
    folder = case.startswith(("configs/pretrain/", "configs/llava/", "configs/eval/"))
    name, _, argument = case.removeprefix("configs/").partition(":")
    is_data = argument.startswith("data=") and not name.startswith(("hp_hn", "clip_ft"))
    return folder or (name in ("clip_coco.py", "siglip_ft.py") and not argument) or is_data


@pytest.mark.parametrize(
    "case", slow_but([case for case in CASES if not has_its_like(case)], CASES)
)
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


def test_zero_shot_knows_eva02_by_its_variant_alone(tmp_path):
    variant, size = "EVA02-L/14-336", 336
    config = load("configs/eval/zero_shot.py", tmp_path, f",variant={variant},size={size}")
    model = resolve(config, "eval").model
    assert (model.image.activation, model.text.activation) == ("swiglu", "gelu")
    assert (model.image.epsilon, model.text.epsilon) == (1e-6, 1e-5)
    assert (model.image.rope, model.image.grid) == ("qk_2d", size // model.image.patch_size)


def test_zero_shot_takes_names_and_templates_that_a_set_has_not(tmp_path):
    make = importlib.import_module("vlc_jax.configs.eval.zero_shot").get_config
    (tmp_path / "wds_vtab-pets").mkdir()
    for file in ("classnames.txt", "zeroshot_classification_templates.txt"):
        (tmp_path / "wds_vtab-pets" / file).touch()
    sets = "imagenet+pets+cifar10+voc2007_multilabel+vtab"
    evals = make(f"root={tmp_path},names=N,ids=I,sets={sets},probe=cifar10,count=9").evals
    assert len(evals) == 6 + 19 + 2 + 1
    assert {options.source for options in evals.values()} == {"labelled"}
    readers = {"voc2007_multilabel": "multilabel", "cifar10_probe": "linear_probe"}
    for name, options in evals.items():
        assert options.reader == readers.get(name, "zeroshot")
        of_source = ("reader", "source", "path")
        own = {key: value for key, value in options.items() if key not in of_source}
        lookup.check("benchmark", benchmarks.READERS, options.reader, own)
    texts = ("class_names", "class_ids", "templates")
    found = {name: [evals[name].get(text) for text in texts] for name in evals}
    names, templates = "N/en_classnames.json", "N/en_zeroshot_classification_templates.json"
    assert found["imagenet_a"] == [f"{names}:imagenet1k", "I", f"{templates}:imagenet1k"]
    assert found["objectnet"] == [None, None, f"{templates}:imagenet1k"]
    assert found["svhn"] == [f"{names}:svhn", None, f"{templates}:svhn"]
    assert found["pets"] == found["cifar10_probe"] == [None] * 3
    assert evals.pets.path == str(tmp_path / "wds_vtab-pets")
    assert evals.cifar10.path == str(tmp_path / "cifar10")
    assert [evals[each].get("metric") for each in ("pets", "svhn")] == [MEAN, None]
    assert [*make("path=a.json").evals] == ["retrieval"]
    for argument, message in (
        ("sets=imagnet", "unknown set 'imagnet'; did you mean 'imagenet'"),
        ("sets=svhn", "root=... is missing"),
        ("sets=svhn,root=r,run=x,weights=y", "run=x has weights of its own"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(argument)


def test_segments_of_a_suite_are_options_of_every_set_and_their_weight_needs_them():
    make = importlib.import_module("vlc_jax.configs.eval.all").get_config
    for argument, expected in (
        ("segments=crops", "crops"),
        ("segments=crops,segment_weight=0.5", {"regions": "crops", "weight": 0.5}),
    ):
        evals = make(f"sets=scenes,{argument}").evals.to_dict()
        assert all(options["segments"] == expected for options in evals.values())
    with pytest.raises(ValueError, match="segment_weight is of segments: say segments="):
        make("sets=scenes,segment_weight=0.5")


def test_geometry_of_a_suite_is_of_the_named_sets_alone():
    make = importlib.import_module("vlc_jax.configs.eval.all").get_config
    evals = make("sets=whatsup_a+whatsup_b,geometry=whatsup_b").evals
    assert [name for name in evals if evals[name].get("geometry")] == ["whatsup_b"]
    with pytest.raises(ValueError, match="unknown set of geometry 'whatsup'; did you mean"):
        make("sets=whatsup_a,geometry=whatsup")


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


# Arguments of a recipe -> fields of its config; of a table, its names.
NEGATIVES, POSITIVES = "input.negatives.generators", "input.positives.generators"
CHOSEN = {
    "hp_hn:data=coco,hn_weight=0": {
        "losses": {"infonce", "analogy"},
        "input.negatives.count": 0,
        "input.positives.count": 1,
    },
    "hp_hn:data=coco,hn_weight=0.25": {"losses.svlc_negative.weight": 0.25},
    "hn:data=coco": {"losses": {"infonce", "svlc_negative"}},
    # section 5.2 of Kamath et al. 2024: texts of one kind alone
    "hp_hn:data=coco,kind=swap": {
        NEGATIVES: {"crepe_swap"},
        POSITIVES: {"swap"},
        "input.positives.fallback": "skip",
    },
    "hp_hn:data=coco,kind=replace": {NEGATIVES: {"crepe_replace"}, POSITIVES: {"replace"}},
    "hp_hn:kind=swap": {
        NEGATIVES: {"scenes_swap", "scenes_reverse"},
        POSITIVES: {"scenes_reorder"},
        "input.positives.fallback": "skip",
    },
    "hp_hn:kind=replace": {NEGATIVES: {"scenes_replace"}, POSITIVES: {"scenes_synonym"}},
    **{
        f"crepe:data=coco,kind={kind}": {NEGATIVES: {f"crepe_{kind}"}}
        for kind in ("swap", "replace", "negate")
    },
    "crepe:kind=negate": {NEGATIVES: {"scenes_negate"}},
    # captions with synonyms: negatives are common words
    "hn:": {"input.negatives.options.scenes_replace.draw": "uniform_word_list"},
    "hn:world=scenes-synonyms": {
        "input.negatives.options.scenes_replace.draw": "base_words",
        "pretrain.input.scenes.world": "scenes-synonyms",
    },
    "svlc:data=coco,lora=false,negatives=rule": {"lora.targets": ""},
    "svlc:data=coco,in_batch,negatives=rule": {"losses": {"negclip", "svlc_negative"}},
    "svlc:data=coco,language_model=folder": {
        NEGATIVES: {"svlc_rule", "svlc_fill_mask"},
        "input.negatives.options.svlc_fill_mask.model": "folder",
        "lora.rank": 4,
    },
    # paraphrases, as the authors' language model writes; hard positives are HP+HN's
    "svlc_pos:": {POSITIVES: {"scenes_paraphrase"}, "input.positives.fallback": "self"},
    "svlc_pos:data=coco,symmetric,negatives=rule": {
        "losses": {"infonce", "svlc_negative", "analogy_symmetric"}
    },
    # a negative of the caption and one of each sentence
    "dac:data=coco,negatives=rule,in_batch": {
        "input.negatives.count": 1,
        "input.negatives.of_positives": 1,
        "input.positives.count": 10,
        "losses.svlc_negative.negative_range": (0, 1),
        "losses.dac_negative_bag.negative_range": (1, None),
        "losses.negclip.negative_range": (0, 1),
    },
    "leftright:data=coco": {"frozen": ("image",)},
    "leftright:data=coco,family=siglip,image_tower=unlocked": {
        "losses": {"sigmoid_negatives"},
        "frozen": (),
        "model.logit_scale_max": None,
    },
    "leftright:family=siglip,world=scenes-hues": {
        "losses": {"sigmoid_negatives"},
        "pretrain.input.scenes.world": "scenes-hues",
        "pretrain.losses": {"sigmoid"},
    },
    "dcsm:data=coco": {"text.context_length": 30},
    "negclip:data=coco,path=mined.jsonl": {
        "input.hard_images": 1,
        "input.source_options": {"path", "id_column", "hard_images_column", "negatives_column"},
    },
    "negclip:data=coco,path=table.jsonl,hard_images=0": {
        "input.source_options": {"path", "negatives_column"}
    },
    "dac:data=coco,negatives=rule,captions=c,dense=d,image_folder=i": {
        "input.source": "dac",
        "input.source_options": {"captions", "dense", "images"},
        "input.positives.generators": {"from_record"},
    },
    "dcsm:data=coco,pairs=p,image_folder=i,opposite=text,augment=false": {
        "input.source": "dcsm",
        "input.source_options": {"path", "images", "opposite"},
        "input.crop": "centre",
        "input.negatives.generators": {"from_record"},
        "losses": {"negclip"},
    },
    **{
        f"dcsm:data={where},mode=authors,blocks=3": {
            "text.functional_words.position": "word",
            "model.head.standardise": "tensor",
            "model.head.dropout": 0.1,
            "batch_size": 48,
            "sub_batches": 3,
            "input.hard_images": 1,
        }
        for where in ("coco", "scenes")
    },
    **{
        f"dcsm:data={where},mode=clean,opposite=text,functional=none,blocks=3": {
            "text.functional_words.position": "token",
            "text.functional_words.words": (),
            "model.head.num_functional_words": 0,
            "model.head.standardise": "running",
            "batch_size": 24,
            "input.hard_images": 0,
            "input.negatives.count": 1,
            "losses": {"negclip"},
            "losses.negclip.weight": 4.0,
        }
        for where in ("coco", "scenes")
    },
    # pixels, data, Adam and losses of the authors' code
    **{
        f"{name}:data=llava,path=a/x.json+b/y.json": {
            "optimizer.learning_rate": 1e-4,
            "optimizer.b2": 0.999,
            "optimizer.weight_decay": 0.0,
            "optimizer.schedule": "constant",
            "optimizer.warmup_steps": 0,
            "epochs": 10.0,
            "batch_size": 4096,
            "model.logit_scale_init": 10.0,
            "frozen": ("image", "text", "logit_scale"),
            "input.image_size": 336,
            "input.crop": "none",
            "input.normalisation": "imagenet",
            "input.source_options.annotations": "a/x.json+b/y.json",
            "input.source_options.images": "a+b",
            "input.source_options.answers": "each",
            "input.noun_phrases.share": 0.5,
            **head,
        }
        for name, head in (
            ("pacl", {"model.head.pooling": "own_caption", "losses.infonce.weight": 1.0}),
            (
                "sparc",
                {
                    "model.head.mask_global_text": False,
                    "losses.infonce.weight": 0.5,
                    "losses.sparc_local.weight": 1.0,
                },
            ),
        )
    },
    # the paper's finetuning, and X-VLM's own
    **{
        f"xvlm_ft:data={data}": {
            "frozen": frozen,
            "batch_size": batch,
            "epochs": epochs,
            "optimizer.learning_rate": rate,
            "optimizer.weight_decay": 0.01,
            "optimizer.warmup_steps": pytest.approx(epochs * examples / batch / 10, abs=1),
        }
        for data, frozen, batch, epochs, rate, examples in (
            ("llava", ("image",), 128, 5.0, 1e-5, 1_182_738),
            ("coco", (), 160, 50.0, 3e-5, 113_287),
        )
    },
    **{
        f"pacl:data={where},text_encoder=a/texts.npy": {
            "text.tokenizer": "vectors",
            "text.tokenizer_options.path": "a/texts.npy",
            "model.text.connector": "none",
            "frozen": ("image", "logit_scale"),
        }
        for where in ("llava,noun_phrases=0", "scenes")
    },
}


@pytest.mark.parametrize("case", CHOSEN)
def test_arguments_choose_what_their_recipe_says(case):
    made = config_of(*case.split(":"))
    for field, expected in CHOSEN[case].items():
        value = made
        for name in field.split("."):
            value = value[name]
        assert (set(value) if isinstance(value, ConfigDict) else value) == expected, field


def test_dcsms_gradient_is_a_third_of_the_sum_over_its_authors_six_blocks():
    """Each block's loss is the sum over rows and columns; ours are means."""
    config = config_of("dcsm", "data=coco")
    (loss,) = config.losses.values()
    blocks, sides = config.sub_batches, 2
    assert loss.weight / (blocks * sides) == pytest.approx(1 / 3)


def test_clips_recipes_crop_as_the_library_of_their_weights(tmp_path):
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for weights, centre in (
        ("ViT-B-32.pt", "centre_torchvision"),
        (folder, "centre"),
        ("", "centre"),
    ):
        of_open_clip = [(name, "random_resized") for name in ("clip_ft", "leftright")]
        for name, crop in (("labclip", centre), *of_open_clip, ("dcsm", "perturbed")):
            config = config_of(name, f"data=coco,weights={weights}")
            assert config.input.crop == crop, (name, weights)
            assert data.image_transform(config, is_training=False).crop == centre, (name, weights)
    for config in (coco("leftright", "family=siglip"), config_of("siglip_ft", "")):
        transforms = [data.image_transform(config, is_training=each) for each in (True, False)]
        assert [transform.crop for transform in transforms] == ["random_resized", "none"]


@pytest.mark.parametrize("where", ["coco", "scenes"])
@pytest.mark.parametrize("weight", ["-1", "nan", "inf"])
def test_weights_below_zero_are_refused(where, weight):
    with pytest.raises(ValueError, match="a number from 0 on"):
        config_of("hp_hn", f"data={where},hn_weight={weight}")
