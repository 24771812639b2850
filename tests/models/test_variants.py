"""Published sizes, by shape evaluation only; and what `build` refuses."""

import re

import jax
import pytest

from tests.support.marks import slow_but
from vlc_jax import errors, models, weights
from vlc_jax.models import variants

# Totals of open_clip_torch 3.3.0 (timm 1.0.31 image towers for SigLIP and EVA), counted with
# sum(p.numel()); they round to the columns of open_clip's docs/model_profile.csv. B/32, B/16,
# L/14, L/14-336 are OpenAI's released sizes.
PUBLISHED = [
    ("mini", {}, 627_649),  # of the project itself
    ("mini/8", {"vocab_size": 128, "context_length": 20}, 617_185),
    ("S/32", {}, 63_085_825),
    ("S/32-alt", {}, 43_224_449),
    ("S/16", {}, 62_257_537),
    ("S/16-alt", {}, 42_396_161),
    ("M/32", {}, 103_119_873),
    ("M/32-alt", {}, 80_070_273),
    ("M/16", {}, 102_015_489),
    ("B/32", {}, 151_277_313),
    ("B/16", {}, 149_620_737),
    ("B/32-plus-256", {}, 210_297_473),
    ("B/16-plus-240", {}, 208_377_345),
    ("L/16", {}, 427_739_393),
    ("L/14", {}, 427_616_513),
    ("L/14", {"vocab_size": 250_100}, 581_747_969),
    ("L/14-336", {}, 427_944_193),
    ("H/16", {}, 986_263_041),
    ("RN50", {}, 102_007_137),
    ("RN101", {}, 119_688_033),
    ("RN50x4", {}, 178_300_601),
    ("RN50x16", {}, 290_979_217),
    ("RN50x64", {}, 623_258_305),
    ("H/14", {}, 986_109_441),
    ("H/14", {"image_size": 378}, 986_714_881),
    ("H/14", {"vocab_size": 901_629}, 1_858_783_745),
    ("g/14", {}, 1_366_678_273),
    ("bigG/14", {}, 2_539_567_105),
    ("bigG/14", {"vocab_size": 901_629, "image_size": 378}, 3_631_197_057),
    ("e/14", {}, 4_581_086_465),
    ("roberta-B/32", {}, 212_723_457),
    ("xlm-roberta-B/32", {}, 366_121_473),
    ("xlm-roberta-H/14", {}, 1_193_014_785),
    ("SigLIP-B/32-256", {"vocab_size": 256_000}, 376_856_066),
    ("SigLIP-B/16", {}, 203_155_970),
    ("SigLIP-B/16", {"image_size": 384}, 203_447_810),
    ("SigLIP-B/16", {"vocab_size": 256_000, "image_size": 512}, 375_823_874),
    ("SigLIP-L/16-256", {}, 652_150_786),
    ("SigLIP-L/16-256", {"vocab_size": 256_000, "image_size": 512}, 882_313_218),
    ("SigLIP-SO400M/14-224", {"context_length": 16}, 877_360_306),
    ("SigLIP-SO400M/14-224", {"vocab_size": 256_000}, 1_135_463_602),
    ("SigLIP-SO400M/14-384", {}, 877_960_498),
    ("SigLIP-SO400M/16-256", {"vocab_size": 256_000}, 1_135_670_962),
    ("SigLIP-SO400M/16-256", {"vocab_size": 256_000, "image_size": 512}, 1_136_555_698),
    ("SigLIP-SO400M/16-i18n-256", {}, 1_127_430_706),
    ("SigLIP-gopt/16-256", {"vocab_size": 256_000}, 1_871_393_906),
    ("SigLIP-gopt/16-256", {"vocab_size": 256_000, "image_size": 384}, 1_871_885_426),
    # transformers' Siglip2Model of these sizes
    ("SigLIP2-B/16-naflex", {"vocab_size": 256_000}, 375_234_050),
    ("SigLIP2-B/16-naflex", {"vocab_size": 256_000, "image_size": 512}, 375_234_050),
    ("SigLIP2-SO400M/16-naflex", {"vocab_size": 256_000}, 1_135_670_962),
    ("Swin-B/32", {}, 178_562_105),
    ("EVA02-B/16", {}, 149_691_137),
    ("EVA02-L/14", {}, 427_755_457),
    ("EVA02-L/14-336", {}, 428_083_137),
    ("EVA01-g/14", {}, 1_136_435_841),
    ("EVA01-g/14-plus", {}, 1_366_621_569),
    ("EVA02-E/14", {}, 4_704_589_569),
    ("EVA02-E/14-plus", {}, 5_044_889_089),
    ("PE-Core-T/16-384", {}, 69_546_113),
    ("PE-Core-S/16-384", {}, 87_188_225),
    ("PE-Core-B/16", {}, 447_660_545),
    ("PE-Core-L/14-336", {}, 671_138_817),
    ("PE-Core-bigG/14-448", {}, 2_419_267_841),
    # from the configs in the authors' repository
    ("OpenVision-Ti/16", {}, 17_096_065),
    ("OpenVision-Ti/8", {}, 17_098_369),
    ("OpenVision-S/16", {}, 55_573_249),
    ("OpenVision-S/8", {}, 55_577_857),
    ("OpenVision-B/16", {}, 140_707_841),
    ("OpenVision-B/8", {}, 140_717_057),
    ("OpenVision-L/14", {}, 414_247_425),
    ("OpenVision-SO400M/14", {}, 863_522_785),
    ("OpenVision-H/14", {}, 968_284_161),
    ("CLIPA-L/14", {}, 414_210_561),
    ("CLIPA-H/14", {}, 968_235_009),
    ("CLIPA-bigG/14", {}, 2_517_223_937),
    # transformers' Dinov2Model (with registers: Dinov2WithRegistersModel) without its mask token,
    # and the logit scale
    ("DINOv2-S/14", {}, 22_056_576 - 384 + 1),
    ("DINOv2-B/14", {}, 86_580_480 - 768 + 1),
    ("DINOv2-B/14", {"image": {"registers": 4}}, 86_583_552 - 768 + 1),
    ("DINOv2-L/14", {}, 304_368_640 - 1024 + 1),
    ("DINOv2-g/14", {}, 1_136_480_768 - 1536 + 1),
]
QUICK = [  # one of each family
    row
    for row in PUBLISHED
    if row[0] in ("mini", "mini/8", "B/32", "B/32-plus-256", "L/14", "EVA02-B/16")
]
# Parameters of the image tower in the same models.
IMAGE = {
    "mini": 380_352,
    "S/16": 21_813_504,
    "B/32": 87_849_216,
    "L/14": 303_966_208,
    "RN50": 38_316_896,
    "RN50x64": 420_380_352,
    "g/14": 1_012_645_632,
    "bigG/14": 1_844_907_264,
    "SigLIP-gopt/16-256": 1_163_168_256,
    "SigLIP-L/16-256": 315_956_224,
    "SigLIP-SO400M/14-384": 428_225_600,
    "Swin-B/32": 87_398_584,
    "EVA02-B/16": 86_263_040,
    "EVA02-L/14": 304_105_152,
    "EVA01-g/14": 1_012_588_928,
    "EVA02-E/14": 4_350_556_928,
    "PE-Core-B/16": 93_673_984,
    "PE-Core-bigG/14-448": 1_882_033_920,
    "OpenVision-SO400M/14": 413_770_608,
}


def counts(variant, repeats=lambda path: 1, **overrides):
    if "DINOv2" in variant:  # the resolution of its files
        overrides = {"image_size": 518, **overrides}
    model = models.build("clip", variant, **overrides)
    params = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    flat = weights.flatten(params)  # statistics of batch norm are buffers in torch
    counted = {
        k: jax.ShapeDtypeStruct((repeats(k) * x.size,), x.dtype)
        for k, x in flat.items()
        if not k.endswith(("/mean", "/variance"))
    }
    return models.parameter_counts(weights.unflatten(counted))


def counts_of_depth(variant, **overrides):
    """As `counts`, from a model of one block, or of two blocks per stage: the others are as large
    as the last one."""
    sizes = variants.VARIANTS[variant]
    depths = {part: of[1] for part in ("image", "text") if (of := getattr(sizes, part))}
    small = {part: {"depth": 1} for part in depths}
    if sizes.stages:
        small["image"] = {"stages": (2,) * len(sizes.stages)}

    def repeats(path):
        if stage := re.search(r"^image/stage_(\d)_block_1/", path):
            return sizes.stages[int(stage[1]) - 1] - 1
        part = path.partition("/")[0]
        return depths[part] if "/block_0/" in path else 1

    overrides |= {part: {**overrides.get(part, {}), **of} for part, of in small.items()}
    return counts(variant, repeats, **overrides)


@pytest.mark.parametrize(("variant", "overrides", "total"), slow_but(QUICK, PUBLISHED))
def test_parameter_counts_are_the_published_ones(variant, overrides, total):
    result = counts_of_depth(variant, **overrides)
    assert result["total"] == total
    if variant in IMAGE and not overrides.keys() - {"vocab_size"}:
        assert result["image"] == IMAGE[variant]


def test_a_count_from_one_block_is_that_of_all():
    assert counts_of_depth("mini") == counts("mini")


def test_every_variant_is_counted_somewhere():
    elsewhere = {"Qwen3-VL-2B"}  # test_qwen3_vl.py
    assert {row[0] for row in PUBLISHED} | elsewhere == set(variants.VARIANTS)


def test_overrides_reach_their_tower_and_the_specific_one_wins():
    model = models.build(
        variant="mini",
        vocab_size=50,
        eos_id=7,
        activation="gelu",
        text={"activation": "quick_gelu", "depth": 5},
        dtype="bfloat16",
        remat="dots",
    )
    assert (model.text.vocab_size, model.text.eos_id, model.text.depth) == (50, 7, 5)
    assert (model.image.activation, model.text.activation) == ("gelu", "quick_gelu")
    assert model.image.dtype == model.text.dtype == "bfloat16"
    assert model.image.remat == model.text.remat == "dots"
    assert models.build(variant="mini").image.activation == "quick_gelu"  # the table is untouched


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"name": "clp"}, "unknown model 'clp'; did you mean 'clip'"),
        ({"variant": "B32"}, "unknown variant 'B32'; did you mean 'B/32'"),
        ({"vocab_sise": 3}, "unknown model option 'vocab_sise'; did you mean 'vocab_size'"),
        ({"image": {"hieght": 3}}, "unknown option of the image tower 'hieght'"),
        ({"text": {"name": "x"}}, "unknown option of the text tower 'name'"),
        ({"image": {"pooling": "eos"}}, "unknown pooling of the image tower 'eos'"),
        ({"text": {"pooling": "cls"}}, "unknown pooling of the text tower 'cls'"),
        ({"activation": "relu"}, "unknown activation of the image tower 'relu'"),
        ({"dtype": "float8"}, "unknown dtype of the image tower 'float8'"),
        ({"image": {"heads": 5}}, "image width 96 is not divisible by 5 heads"),
        ({"image": {"depth": 10**7}}, "image: depth is at most 1,000; got 10000000"),
        ({"variant": "RN50", "image": {"stages": [3, 10**7]}}, "stages is at most 1,000; got .3"),
        (
            {"name": "captioner", "head": {"decoder": {"depth": 10**7}}},
            "head, decoder: depth is at",
        ),
        ({"image": {"patch_size": 8}}, "a stem or a patch_size"),
        ({"variant": "RN50", "image_size": 63}, "a multiple of 32 pixels; got 63"),
        ({"variant": "Swin-B/32", "image_size": 384}, "a multiple of 224 pixels; got 384"),
        ({"variant": "DINOv2-B/14", "text": {"depth": 2}}, "no text tower, so no depth of one"),
        ({"image": {"stem": (16, 32)}}, "must end with the image width, 96"),
        ({"image": {"activation": "swiglu"}}, "swiglu is an activation of MLPs, not of a stem"),
        ({"image": {"rope": "1d"}}, "unknown rope of the image tower '1d'"),
        ({"image": {"rope": "qk_2d", "heads": 16}}, "divisible by 4; got image width 96 / 16"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_nearest(request_, message):
    with pytest.raises(errors.UsageError, match=message):
        models.build(**request_)
