"""Runs of the study by part: their configs and base runs."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from studies import study_binding, study_columns, study_results
from vlc_jax.configs.common import finetuning

# of the hard negatives; hp_hn has weight 1
NEGATIVE_WEIGHTS = ("0", "0.25", "0.5", "0.75")
PAIRS_ALONE = f"scenes/hard_images:steps={finetuning.RELATION_STEPS}"
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
    "pooled:": {"pooled": "steps=500"},
    "pacl:phrases=plain,": {"pacl_plain": "steps=500"},
    "sparc:phrases=plain,": {"sparc_plain": "steps=500"},
    # Steps and pairs as for PACL; the features are pooled outputs, and small.
    "labclip:": {"labclip": "steps=500"},
    "labclip:phrases=plain,": {"labclip_plain": "steps=500"},
    "tflocal:": {"tflocal": "steps=3000"},
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
NEW = {  # newer methods of part f and two controls: run -> config, base
    **{
        name: (name, "clip")
        for name in ("tripletclip", "conclip", "csclip", "clic", "ce_clip", "read_clip", "degla")
    },
    "flair": ("flair", "clip_mean"),  # whose patches are trained; the towers stay frozen
    "fsc_clip_local": ("fsc_clip:local=0.2", "clip"),
    "xvlm_itc": ("xvlm_ft", "clip_mean"),
    "xvlm": ("xvlm_ft", "clip_mean"),
    "siglip_ft": ("c2lip", "siglip"),
    "c2lip": ("c2lip", "siglip"),
    "siglip2_dense": ("siglip2_dense", "siglip"),
}
UNTRAINED = {  # of part f, options of evaluations: run -> option, base
    "negation": ("negation=1.9", "clip"),
    "crops": ("segments=crops", "clip"),
    "crops_half": ("segments=crops,segment_weight=0.5", "clip"),
    "patches": ("segments=patches", "clip_mean"),  # whose patches are trained
}
# Benchmarks of runs with a head (the columns of their table) -> number of cases.
HEAD_EVALS = {column.benchmark: 2000 for column in study_columns.HEADS} | {"scenes_retrieval": 1000}
HEAD_EVALS |= {"scenes_order": 2000}
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
# of part f: run -> its evaluations, where a BERT reads every pair; brittleness reads three texts
MATCHING = {"xvlm": DECODER_EVALS | {"scenes_replace": 2000, "scenes_swap": 2000}}
AT_CHANCE = ("xvlm", "xvlm_itc")  # on swapped attributes: no gain that images could explain
SENTENCES = {  # part l: run -> further arguments of scenes/text_vectors
    "minilm": "",
    "minilm_pacl": ",head=pacl",
    "minilm_pacl_1d": ",head=pacl,rope=feature_1d",
}
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
    "k": "hard negatives without the image, and without what gives them away",
    "l": "vectors of a published sentence encoder on frozen towers",
    "m": "a published decoder in the miniature LLaVA",
    "n": "what makes binding: captions by density, completeness and saliency",
}
# Part k: methods and their controls. NegCLIP's negatives on the scenes need no balance: a blind
# classifier is right in 49 % of them.
BLIND = {
    "clip_ft": "clip_ft",
    "hn": "hn",
    "hp_hn": "hp_hn",
    "clip_ft_400": "clip_ft:steps=400",
    "negclip": "negclip:steps=400",
}
PERMUTED = "--config.input.source_options.images=permuted"
# of runs of part f: their own flags, and another one in place of PERMUTED
FLAGS = {
    "siglip_ft": tuple(
        f"--config.losses.sigmoid_phrases{end}.weight=0.0" for end in ("", "_local")
    ),
    "xvlm_itc": ("--config.losses={'itc': {'weight': 1.0}}", "--config.model.head.scores=itc"),
}
PERMUTED_FLAGS = {"clic": "--config.input.source_options.base_options.images=permuted"}
# Of balanced negatives, in percent: the goal of `hard_texts --balance`, and nearly chance.
BALANCES = (60, 52)


class Balanced(NamedTuple):
    """Runs of part f: a method with balanced negatives, and with as many drawn at random.

    texts, random: runs that store the negatives.   kept: share that `texts` keeps, and so `random`.
    source: method whose negatives these are.   kinds: for CE-CLIP, which has a threshold for each.
    """

    texts: str
    random: str
    kept: float
    source: str
    kinds: tuple[str, ...] = ()


_EACH = ("scenes_replace", "scenes_reverse", "scenes_swap")
_FOUR = Balanced("texts_52_four", "texts_random_four", 0.39, "degla")
# FSC-CLIP draws three of DeGLA's four, of the same generators.
BALANCED = {
    "ce_clip": Balanced("texts_52_each", "texts_random_each", 0.6, "ce_clip", _EACH),
    "degla": _FOUR,
    "fsc_clip_local": _FOUR,
}
ANY = "any device"
WITH_VALUES = ("train", "evaluate", "texts")  # tools of runs that have results


class Run(NamedTuple):
    """One run of a study.

    name: its folder in OUT.
    config: short name of a config, with arguments.
    base: run whose weights it starts from.
    features, vectors: runs whose stored features, or text vectors, it trains on.
    tool: train | evaluate | features | vectors | texts | sentences. evaluate runs further
      benchmarks on `base`; features and vectors store those of `base`; texts stores balanced
      negatives of the config, sentences text vectors of MiniLM.
    evals: benchmark -> number of cases, instead of the config's benchmarks.
    split: what it is evaluated on.
    texts: run whose balanced negatives it reads.
    kinds: of these, one in each place, for a loss that knows places; (): any.
    flags: further flags of its command.
    """

    name: str
    config: str
    base: str = ""
    seed: int = 0
    features: str = ""
    vectors: str = ""
    tool: str = "train"
    evals: Mapping[str, int] = MappingProxyType({})
    split: str = "test"
    texts: str = ""
    kinds: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

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
        return [name for name in (self.base, self.features, self.vectors, self.texts) if name]


def runs(part: str) -> list[Run]:
    """Runs of a part, without seeds; base runs come first."""
    clip = Run("clip", "scenes/clip")
    relations = [
        Run("hard_images", PAIRS_ALONE, "clip"),
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
        # there 800 steps on pairs teach relations in every seed
        pairs = Run("hard_images", "scenes/hard_images:steps=800", "clip")
        of_b = [pairs if run.name == pairs.name else run for run in runs("b")]
        return [run.in_world("scenes-synonyms") for run in of_b]
    if part == "f":
        others = [Run(name, config, base) for name, (config, base) in OTHERS.items()]
        return [clip, _heads()[0], *others, *_new_methods()]
    if part == "g":
        config = "eval/all:sets=scenes_geometry+scenes_shuffled"
        return [
            clip,
            *relations,
            Run("clip_geometry", config, "clip", tool="evaluate"),
            Run("relations_geometry", config, "relations", tool="evaluate"),
            *[run for run in _heads() if run.name in ("clip_mean", "features_dcsm", "dcsm")],
            Run("dcsm_geometry", "eval/all:sets=scenes_geometry", "dcsm", tool="evaluate"),
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
    if part == "k":
        return [clip, *_blind()]
    if part == "l":
        return _sentences()
    if part == "m":  # few steps: a row takes .2 s of a core
        tower, stage = _heads()[0], "studies/smollm:stage={},steps={},batch=32,count={}"
        first = Run("smollm_stage1", stage.format(1, 100, 16), tower.name)
        return [tower, first, Run("smollm", stage.format(2, 200, 200), first.name)]
    if part == "n":
        return _binding()
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


def _blind() -> list[Run]:
    """Runs of part k: each method as it is, with the images of other captions, with negatives that
    a blind classifier cannot tell from captions, and with both changes; HN with fewer negatives."""
    paired = [Run(name, config, "clip") for name, config in BLIND.items()]
    for share in BALANCES:
        # the negatives of HP+HN are those of HN
        texts = f"texts_{share}"
        paired.append(Run(texts, "hn", tool="texts", flags=(f"--balance={share / 100}",)))
        paired += [
            Run(f"{name}_balanced_{share}", BLIND[name], "clip", texts=texts)
            for name in ("hn", "hp_hn")
        ]
    # as many negatives as the filter leaves of HN's for 52 %, without a look at their texts
    few = Run("texts_random", "hn", tool="texts", flags=("--keep=.45",))
    random = [few, Run("hn_random", BLIND["hn"], "clip", texts=few.name)]
    permuted = [
        run._replace(name=f"{run.name}_permuted", flags=(PERMUTED,))
        for run in paired
        if run.tool == "train"
    ]
    return [*paired, *permuted, *random]


def _new_methods() -> list[Run]:
    """Newer methods of part f and their controls, with the right images and with permuted ones."""
    paired = [
        Run(name, config, base, flags=FLAGS.get(name, ()), evals=MATCHING.get(name, {}))
        for name, (config, base) in NEW.items()
    ]
    by_name, goal = {run.name: run for run in paired}, f"--balance={BALANCES[-1] / 100}"
    texts = [
        Run(name, of.source, tool="texts", flags=(flag,))
        for of in dict.fromkeys(BALANCED.values())
        for name, flag in ((of.texts, goal), (of.random, f"--keep={of.kept}"))
    ]
    configs = {**BLIND, **{name: config for name, (config, _) in {**OTHERS, **NEW}.items()}}
    texts += [
        Run(f"texts_{name}", configs[name], tool="texts", flags=("--keep=1",))
        for name in study_columns.DRAWN
    ]
    random = [
        by_name[name]._replace(name=f"{name}_random", texts=of.random, kinds=of.kinds)
        for name, of in BALANCED.items()
    ]
    paired += [
        by_name[name]._replace(name=f"{name}_balanced_52", texts=of.texts, kinds=of.kinds)
        for name, of in BALANCED.items()
    ]
    of_table = [Run(name, *OTHERS[name]) for name in OTHERS if name in study_columns.METHODS]
    blind = [
        run._replace(
            name=f"{run.name}_permuted", flags=(*run.flags, PERMUTED_FLAGS.get(run.name, PERMUTED))
        )
        for run in (Run("clip_ft", "clip_ft", "clip"), *of_table, *paired, *_live_heads())
        if run.name not in AT_CHANCE
    ]
    untrained = [
        Run(name, f"eval/all:sets=scenes,{option}", base, tool="evaluate")
        for name, (option, base) in UNTRAINED.items()
    ]
    corrected = [_corrected(name, how) for name, how in study_columns.NEGATIONS.items()]
    evals = {column.benchmark: {"split": "test"} for column in study_columns.DETAIL_COLUMNS}
    details = [_evaluated(name, base, evals) for name, base in study_columns.DETAILS.items()]
    return [*texts, *paired, *random, *blind, *untrained, *corrected, *details]


def _live_heads() -> list[Run]:
    """Heads of the table of methods on the pairs of their stored features, with their images."""
    return [
        Run(name, f"{head}{PAIRS},{arguments}", "clip_mean", evals=HEAD_EVALS)
        for head, variants in HEADS.items()
        for name, arguments in variants.items()
        if name in study_columns.METHODS
    ]


def _corrected(name: str, how: Mapping[str, object]) -> Run:
    """CLIP on captions with and without a negation, which is taken out of texts as `how` says."""
    options = {"split": "test"} | ({"negation": dict(how)} if how else {})
    evals = {column.benchmark: options for column in study_columns.NEGATION_COLUMNS}
    return _evaluated(name, "clip", evals)


def _evaluated(name: str, base: str, evals: Mapping[str, Mapping[str, object]]) -> Run:
    """A run that is there, on further benchmarks."""
    flag = f"--config.evals={evals}"
    return Run(name, "eval/all:sets=scenes", base, tool="evaluate", flags=(flag,))


def _binding() -> list[Run]:
    """Runs of part n: a CLIP for each kind of captions; of some, CLIP-FT and HN with the same
    captions."""
    config = f"scenes/clip:steps={study_binding.STEPS}"
    sizes = (
        f"--config.batch_size={study_binding.BATCH}",
        f"--config.eval.every={study_binding.STEPS}",
    )
    evals = {"evals": study_binding.EVALS}
    cells = [
        Run(cell.name, config, flags=(*sizes, cell.captions), **evals)
        for cell in study_binding.CELLS
    ]
    finetuned = [
        Run(f"{cell.name}_{name}", name, cell.name, flags=(cell.captions,), **evals)
        for cell in study_binding.FINETUNED
        for name in ("clip_ft", "hn")
    ]
    return [*cells, *finetuned]


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
        Run("hard_images_mean", f"{PAIRS_ALONE},pooling=mean", "clip_mean"),
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


def _sentences() -> list[Run]:
    """Runs of part l: text vectors of MiniLM, their connector and heads on the towers of part d."""
    bases = [run for run in _heads() if run.name.endswith("_mean")]
    vectors = Run("minilm_vectors", "scenes/text_vectors", tool="sentences", evals=HEAD_EVALS)
    config = "scenes/text_vectors:connector=mlp2x_gelu,steps=400"
    trained = [
        Run(f"{name}{suffix}", f"{config}{more}", base, vectors=vectors.name, evals=HEAD_EVALS)
        for base, suffix in (("clip_mean", ""), ("relations_mean", "_relations"))
        for name, more in SENTENCES.items()
    ]
    return [*bases, vectors, *trained]


def plan(parts: Sequence[str], seeds: int) -> list[Run]:
    """All runs of the parts with all seeds, each once, base runs first.

    seeds: of every run but those of study_columns.SEEDS."""
    unique = {(run.name, seed): run for part in parts for run, seed in _with_seeds(part, seeds)}

    def named(run: str, seed: int) -> str:
        return run and f"{run}-{min(seed, study_columns.seeds_of(run, seeds) - 1)}"

    return [
        run._replace(
            name=named(run.name, seed),
            base=named(run.base, seed),
            features=named(run.features, seed),
            vectors=named(run.vectors, seed),
            texts=named(run.texts, seed),
            seed=seed,
        )
        for (_, seed), run in unique.items()
    ]


def _with_seeds(part: str, seeds: int) -> Iterator[tuple[Run, int]]:
    for run in runs(part):
        for seed in range(study_columns.seeds_of(run.name, seeds)):
            yield run, seed


def remaining(todo: Sequence[Run], values: Path) -> list[Run]:
    """Runs without current values in the file `values`, and the runs that they need.

    Values are current if their config is that of the plan, and if their base has current values of
    the same device, or none at all; values without a record are taken as current."""
    done = defaultdict[str, list[dict]](list)
    for key, of in study_results.read_values(values).items():
        done[study_results.run_of(key)].append(of)
    current = dict[str, set[str]]()  # run -> devices
    for run in todo:
        base = current.get(run.base, set()) if done[run.base] else {ANY}
        current[run.name] = {
            ANY if study_results.RECORD not in of else study_results.device_of(of)
            for of in done[run.name]
            if of.get(study_results.RECORD, {}).get("config", run.config) == run.config
            and {ANY, study_results.device_of(of)} & base
        }
    names = {run.name for run in todo if run.tool in WITH_VALUES and not current[run.name]}
    # reversed: base runs come before the runs that need them
    for run in reversed(todo):
        if run.name in names:
            names |= {*run.needed}
    return [run for run in todo if run.name in names]


def preferred(part: str, results: study_results.Results) -> str:
    """The device that trained most runs of a part."""
    runs_of_part = plan([part], results.seeds) if part in PARTS else ()
    counted = Counter(device for run in runs_of_part for device in results.by_device(run.name))
    return max(sorted(counted), key=counted.__getitem__, default="")
