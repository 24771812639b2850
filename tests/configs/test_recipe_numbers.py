"""Numbers that a recipe promises to reproduce are those of the published values."""

import importlib
import re

import pytest

from vlc_jax.configs.common import pretrained
from vlc_jax.report import published

L14, SIGLIP, EVA = "CLIP ViT-L/14-336", "SigLIP ViT-L/16-384", "EVA-CLIP"
NEGATIVES, FINETUNED = "left/right negatives", "finetuning"
B32 = "CLIP ViT-B/32"
LLM2VEC, UNLOCKED = "LLM2Vec", "image tower unlocked"
MNTP = "Llama-2-7B-MNTP"  # as table 10 calls it
MODELS = {  # config -> models whose values its docstring has
    "clip_ft": ("CLIP-FT", B32),
    "clip_coco": ("CLIP-COCO", B32),
    "negclip": ("NegCLIP",),
    "crepe": ("CREPE-swap", "CREPE-replace", "RN50 + CREPE-negate", "RN50"),
    "svlc": ("SVLC",),
    "svlc_pos": ("SVLC+Pos",),
    "dac": ("DAC-LLM", "DAC-SAM"),
    "hn": ("HN",),
    "hp_hn": (
        *("HP+HN", "HP+HN, swap only", "HP+HN, replace only"),
        *(f"HP+HN, weight {weight}" for weight in ("0", ".25", ".5", ".75")),
    ),
    "fsc_clip": ("FSC-CLIP",),
    "conclip": ("CoN-CLIP", B32),
    "csclip": ("CS-CLIP", B32),
    "read_clip": ("READ-CLIP",),
    "labclip": ("LABCLIP ViT-B/32",),
    "leftright": (
        *(f"{model} + {NEGATIVES}" for model in (L14, SIGLIP)),
        *(f"{L14} + {FINETUNED}", f"{SIGLIP} + {NEGATIVES}, image tower unlocked"),
    ),
    "llava.clip_ft": (
        *(L14, SIGLIP, EVA, f"{EVA} + {NEGATIVES}"),
        *(f"{model} + {FINETUNED}" for model in (L14, SIGLIP, EVA)),
    ),
    "xvlm_ft": (f"XVLM-16M + {FINETUNED}", "XVLM-16M"),
    "pacl": (
        *(L14, f"{L14} + PACL", f"{L14} + PACL + RoPE"),
        f"{L14} + PACL + RoPE + stronger text encoder",
    ),
    "sparc": (f"{L14} + SPARC + RoPE",),
    "llava.llm2vec": (
        *(f"{model} + {LLM2VEC} + {FINETUNED}" for model in (L14, SIGLIP)),
        *(f"{model} + {LLM2VEC} + {NEGATIVES}" for model in (L14, SIGLIP)),
        *(f"{SIGLIP} + {MNTP} + {kind}, {UNLOCKED}" for kind in (FINETUNED, NEGATIVES)),
    ),
    "llava.stage2": (
        *("LLaVA-1.5-7B-LoRA", "[CLS]-LLaVA-1.5-7B-LoRA"),
        *(f"LLaVA-1.5-7B{more}" for more in ("", " + RP", " + DIVA")),
    ),
}
# The sentences with published numbers.
PROMISE = re.compile(r"([Mm]ust reproduce|The authors' numbers|No number of).*?Not yet run")
NUMBER = re.compile(r"(?<![\w.:=(-])(?:\d+)?\.\d+(?![\w])")


def promised(name):
    text = " ".join(importlib.import_module(f"configs.{name}").__doc__.split())
    return " ".join(match[0] for match in PROMISE.finditer(text))


def texts_of(model):
    """Every value of a model in the two ways of writing: 61.6, and .62 for a fraction."""
    texts = set()
    for value in published.of_model(model):
        if value.source != "vl_compo":
            texts |= {f"{100 * value.number:.1f}", f"{value.number:.{value.decimals}f}"[1:]}
    return texts


@pytest.mark.parametrize("name", MODELS)
def test_every_number_of_a_promise_is_a_published_value(name):
    known = set().union(*map(texts_of, MODELS[name]))
    if name == "hp_hn":
        known |= {"0.75", "0.5", "0.25"}  # weights
    if name == "pacl":
        known |= {"50.0", "25.0"}  # chance
    numbers = NUMBER.findall(promised(name))
    assert len(numbers) > 1
    assert [number for number in numbers if number not in known] == []


TRIPLETS = [name for name in MODELS if "REPLACE" in promised(name)]


@pytest.mark.parametrize("name", TRIPLETS)
def test_triplets_stand_in_the_order_original_augmented_brittleness(name):
    for model in MODELS[name]:
        values = {
            (value.benchmark, value.metric.removesuffix("_macro")): value.value
            for value in published.of_model(model)
            if value.source == "hard_positives"
        }
        if not values:  # of a ResNet-50
            continue
        metrics = ("original_accuracy", "augmented_accuracy", "brittleness")
        for benchmark in ("replace", "swap"):
            printed = " / ".join(f"{values[benchmark, metric]:.1f}" for metric in metrics)
            assert printed in promised(name), model


SETS = {  # word of a promise -> sets that have the number
    "VG-Relation": "vg_relation",
    "VG-Attribution": "vg_attribution",
    "COCO-PRC": "coco_order",
    "Flickr30k-PRC": "flickr30k_order",
    "ARO": pretrained.ARO,
    "COCO R@1": "coco_retrieval",
    "Flickr30k 6": "flickr30k_retrieval",
    "REPLACE": "replace",
    "SWAP": "swap",
    "SugarCrepe": "sugarcrepe",
    "NegBench": "negbench",
    "half-truth": "half_truths",
    "CREPE ": "crepe_productivity",
    "VALSE": "valse",
    "Winoground": "winoground",
    "What'sUp, ": pretrained.WHATSUP,
    "What'sUp left": pretrained.WHATSUP,
    "What'sUp by": pretrained.WHATSUP,
    "What'sUp 4": pretrained.SPATIAL,
    "MMVP ": "mmvp",
    "MMVP-VLM": "mmvp_vlm",
}


def sets_of(config):
    return [options.get("reader", name) for name, options in config.evals.items()]


@pytest.mark.parametrize("name", [*MODELS, "siglip_ft", "llava.vlm2vec"])
def test_a_recipe_evaluates_the_sets_of_its_numbers_in_root_after_its_last_step(name):
    module = importlib.import_module(f"vlc_jax.configs.{name}")
    data = {"pacl": "llava", "sparc": "llava"}.get(name, "coco")
    given = f"data={data}," if "data=" in module.__doc__ and "." not in name else ""
    given += "negatives=rule," if name in ("svlc", "svlc_pos", "dac") else ""
    config = module.get_config(f"{given}weights=w,path=x.tsv,root=sets")
    words = [word for word in SETS if word in promised(name).replace("What'sUp on", "What'sUp,")]
    if name == "siglip_ft":
        words = ["What'sUp, "]
    assert {*"+".join(SETS[word] for word in words).split("+")} <= {*sets_of(config)}
    assert words
    for options in config.evals.values():
        assert options.root == "sets"
    assert name == "llava.vlm2vec" or config.eval.every > 10**6
    few = module.get_config(f"{given}weights=w,path=x.tsv,root=sets,sets=bla")
    assert sets_of(few) == ["bla"]
    assert not module.get_config(f"{given}weights=w,path=x.tsv").evals


def test_no_recipe_with_published_numbers_is_forgotten():
    assert len(TRIPLETS) == 7
