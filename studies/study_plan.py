"""Runs of the study by part: their configs and base runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from studies import study_columns

# of the hard negatives; hp_hn has weight 1
NEGATIVE_WEIGHTS = ("0", "0.25", "0.5", "0.75")
PAIRS = "pairs=24000"  # pairs of images with stored features
HEADS = {  # config with the arguments of the stored features -> run -> further arguments
    "dcsm:": {"dcsm": "layout=flat", "dcsm_grid": "layout=grid", "dcsm_no_rows": "functional=none"},
    "dcsm:phrases=varied,": {"dcsm_varied": "layout=flat"},
    "pacl:": {
        "pacl": "steps=500",
        "pacl_feature_1d": "rope=feature_1d,steps=500",
        "pacl_feature_2d": "rope=feature_2d,steps=500",
    },
    "sparc:": {"sparc": "steps=500"},
    "pacl:phrases=plain,": {"pacl_plain": "steps=500"},
    "sparc:phrases=plain,": {"sparc_plain": "steps=500"},
    # Steps and pairs as for PACL; the features are pooled outputs, and small.
    "labclip:": {"labclip": "steps=500"},
    "labclip:phrases=plain,": {"labclip_plain": "steps=500"},
}
UNLOCKED = {  # run -> further arguments of PACL with a trained image tower
    "pacl_unlocked": "",
    "pacl_qk_1d": ",rope=qk_1d",
    "pacl_qk_2d": ",rope=qk_2d",
}
OTHERS = {  # run -> config, base
    "siglip": ("scenes/siglip", ""),
    "clip_ft": ("clip_ft", "clip"),
    "crepe_swap": ("crepe:kind=swap", "clip"),
    "crepe_replace": ("crepe:kind=replace", "clip"),
    "crepe_negate": ("crepe:kind=negate", "clip"),
    "svlc": ("svlc", "clip"),
    "svlc_pos": ("svlc_pos", "clip"),
    "dac": ("dac", "clip"),
    "fsc_clip": ("fsc_clip", "clip"),
    "leftright_none": ("leftright:negatives=none", "clip"),
    "leftright": ("leftright", "clip"),
    "leftright_siglip_none": ("leftright:family=siglip,negatives=none", "siglip"),
    "leftright_siglip": ("leftright:family=siglip", "siglip"),
}
# Benchmarks of runs with a head (the columns of their table) -> number of cases.
HEAD_EVALS = {column.benchmark: 2000 for column in study_columns.HEADS} | {"scenes_retrieval": 1000}
# No retrieval: a decoder would have to read its million image-text pairs.
DECODER_EVALS = {column.benchmark: 2000 for column in study_columns.DECODERS}
RELATIONS = "scenes/captioner:depth=2,steps=800,batch=256,relations=1"
DECODERS = {  # captioner -> config
    "captioner": f"{RELATIONS},positions=1",
    "captioner_pooled": f"{RELATIONS},select=pooled",
    "captioner_any": "scenes/captioner:depth=2,steps=800,batch=256,positions=1",
}
# VLM2Vec; same sizes as the captioner that it starts from
EMBEDDER = "depth=2,positions=1,relations=1,steps=2000,batch=64"
PARTS = {
    "a": "the bag of words, and what cures it",
    "b": "hard positives, from CLIP and from a model that knows relations",
    "c": "the same with ten colours that are hard to tell apart",
    "d": "heads on frozen towers, of the bag of words and of the model that knows relations",
    "e": "part b in a world whose captions say synonyms",
    "f": "the other methods",
    "g": "what the embeddings of the bag of words and of the model that knows relations are like",
    "h": "decoders over the frozen tokens of the bag of words",
    "i": "what a miniature LLaVA over the bag of words answers",
    "j": "a decoder that knows relations as an embedder, with a question and without",
}


class Run(NamedTuple):
    """One run of a study.

    name: its folder in OUT.
    config: short name of a config, with arguments.
    base: run whose weights it starts from.
    features, vectors: runs whose stored features, or text vectors, it trains on.
    tool: train | evaluate | features | vectors: evaluate runs further benchmarks on `base`; the
      last two store the features or text vectors of `base`.
    evals: benchmark -> number of cases, instead of the config's benchmarks.
    """

    name: str
    config: str
    base: str = ""
    seed: int = 0
    features: str = ""
    vectors: str = ""
    tool: str = "train"
    evals: Mapping[str, int] = MappingProxyType({})

    def in_world(self, world: str) -> "Run":
        """The same run in another world scenes-SUFFIX, with the suffix in its name."""
        suffix = f"_{world.removeprefix('scenes-')}"
        name, _, arguments = self.config.partition(":")
        arguments = ",".join(filter(None, (arguments, f"world={world}")))
        base = self.base and self.base + suffix
        return self._replace(name=self.name + suffix, config=f"{name}:{arguments}", base=base)

    @property
    def needed(self) -> list[str]:
        """Names of the runs that must finish first."""
        return [name for name in (self.base, self.features, self.vectors) if name]


def runs(part: str) -> list[Run]:
    """Runs of a part, without seeds; base runs come first."""
    clip = Run("clip", "scenes/clip")
    relations = [
        Run("hard_images", "scenes/hard_images", "clip"),
        Run("relations", "negclip:hard_images", "hard_images"),
    ]
    if part == "a":
        return [
            clip,
            Run("clip_ft_400", "clip_ft:steps=400", "clip"),
            Run("negclip", "negclip:steps=400", "clip"),
            *relations,
            Run("clip_ft_1200", "clip_ft:steps=1200", "clip"),
        ]
    if part == "b":
        return [
            clip,
            *relations,
            *_hard_positives("", "clip"),
            *_hard_positives("_relations", "relations"),
        ]
    if part == "d":
        return _heads()
    if part == "e":
        return [run.in_world("scenes-synonyms") for run in runs("b")]
    if part == "f":
        return [clip, *[Run(name, config, base) for name, (config, base) in OTHERS.items()]]
    if part == "g":
        config = "eval/all:sets=scenes_geometry+scenes_shuffled"
        return [
            clip,
            *relations,
            Run("clip_geometry", config, "clip", tool="evaluate"),
            Run("relations_geometry", config, "relations", tool="evaluate"),
        ]
    frozen, evals = Run("clip_frozen", "scenes/clip:pooling=mean"), {"evals": DECODER_EVALS}
    if part == "h":
        decoders = DECODERS.items()
        return [frozen, *[Run(name, config, frozen.name, **evals) for name, config in decoders]]
    if part == "i":
        return [frozen, *_llava("", ""), *_llava("_pooled", ",select=pooled")]
    if part == "j":
        return [
            frozen,
            Run("captioner", DECODERS["captioner"], frozen.name, **evals),
            Run("vlm2vec", f"scenes/vlm2vec:{EMBEDDER}", "captioner", **evals),
            Run("vlm2vec_plain", f"scenes/vlm2vec:question=0,{EMBEDDER}", "captioner", **evals),
        ]
    few = [clip, *[Run(name, name, "clip") for name in ("clip_ft", "hn", "hp_hn")]]
    return [run.in_world("scenes-hues") for run in few]


def _hard_positives(suffix: str, base: str) -> list[Run]:
    configs = {
        "clip_ft": "clip_ft",
        "hn": "hn",
        "hp_hn": "hp_hn",
        **{f"hp_hn_w{weight}": f"hp_hn:hn_weight={weight}" for weight in NEGATIVE_WEIGHTS},
        "hp_hn_swap_only": "hp_hn:kind=swap",
        "hp_hn_replace_only": "hp_hn:kind=replace",
    }
    return [Run(name + suffix, config, base) for name, config in configs.items()]


def _llava(suffix: str, arguments: str) -> list[Run]:
    """Runs of both stages of a miniature LLaVA."""
    first = Run(f"llava_stage1{suffix}", f"scenes/llava:stage=1{arguments}", "clip_frozen")
    return [first, Run(f"llava{suffix}", f"scenes/llava:stage=2{arguments}", first.name)]


def _heads() -> list[Run]:
    """Runs of part d: base models, stored features, and heads trained on them.

    Base models have mean pooling, so that their loss trains the patch tokens. RoPE inside the image
    tower requires training that tower. Text vectors come from the relations model.
    """
    all_runs = [
        Run("clip_mean", "scenes/clip:pooling=mean"),
        Run("hard_images_mean", "scenes/hard_images:pooling=mean", "clip_mean"),
        Run("relations_mean", "negclip:hard_images,pooling=mean", "hard_images_mean"),
    ]
    for base, suffix in (("clip_mean", ""), ("relations_mean", "_relations")):
        for head, variants in HEADS.items():
            features = f"features_{next(iter(variants))}{suffix}"
            all_runs.append(Run(features, f"{head}{PAIRS}", base, tool="features"))
            for name, arguments in variants.items():
                config = f"{head}{arguments}"
                run = Run(f"{name}{suffix}", config, base, features=features, evals=HEAD_EVALS)
                all_runs.append(run)
    all_runs.append(Run("vectors", "scenes/text_vectors", "relations_mean", tool="vectors"))
    for base, suffix in (("clip_mean", ""), ("relations_mean", "_relations")):
        config = "scenes/text_vectors:connector=mlp2x_gelu,steps=400"
        run = Run(f"text_vectors{suffix}", config, base, vectors="vectors", evals=HEAD_EVALS)
        all_runs.append(run)
    for base, suffix in (("relations_mean", "_relations"), ("clip_mean", "")):
        for name, arguments in UNLOCKED.items():
            config = f"pacl:image_tower=unlocked,steps=125{arguments}"
            all_runs.append(Run(f"{name}{suffix}", config, base, evals=HEAD_EVALS))
    return all_runs


def plan(parts: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """All runs of the parts with all seeds, each once, base runs first."""
    unique = {run.name: run for part in parts for run in runs(part)}
    return [
        run._replace(
            name=f"{run.name}-{seed}",
            base=run.base and f"{run.base}-{seed}",
            features=run.features and f"{run.features}-{seed}",
            vectors=run.vectors and f"{run.vectors}-{seed}",
            seed=seed,
        )
        for run in unique.values()
        for seed in seeds
    ]


def remaining(todo: Sequence[Run], values: Path) -> list[Run]:
    """Runs without values in the file `values`, and the runs that they need."""
    done = json.loads(values.read_text()) if values.exists() else {}
    has_values = ("train", "evaluate")
    names = {run.name for run in todo if run.tool in has_values and run.name not in done}
    # reversed: base runs come before the runs that need them
    for run in reversed(todo):
        if run.name in names:
            names |= {*run.needed}
    return [run for run in todo if run.name in names]
