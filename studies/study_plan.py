"""Runs of the study by part: the methods on the scenes, in worlds, on bases and with controls."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from studies import study_binding, study_columns, study_results
from studies.study_columns import OF_TABLE
from vlc_jax.configs.common import finetuning
from vlc_jax.configs.common.methods import METHODS

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


def _cases(*titles: str, count: int = 2000) -> dict[str, int]:
    return {study_columns.COLUMNS[title].benchmark: count for title in titles}


HEADS = ("dcsm", "pacl", "sparc", "pooled", "labclip", "tflocal")  # trained on stored features
RETRIEVAL = {"scenes_retrieval": 1000, "scenes_order": 2000}
HEAD_EVALS = _cases(*study_columns.OF_HEADS) | RETRIEVAL
DECODER_EVALS = _cases(*study_columns.OF_DECODERS)
EVALS = {  # method -> its evaluations
    **dict.fromkeys((*HEADS, "llm2vec"), HEAD_EVALS),
    **dict.fromkeys(("captioner", "vlm2vec"), DECODER_EVALS),
    # a BERT reads every pair; brittleness reads three texts
    "xvlm_ft": DECODER_EVALS | {"scenes_replace": 2000, "scenes_swap": 2000},
}
PERMUTED = "--config.input.source_options.images=permuted"
PERMUTED_FLAGS = {"clic": "--config.input.source_options.base_options.images=permuted"}
FLAGS = {  # of controls
    "siglip_ft": tuple(
        f"--config.losses.sigmoid_phrases{end}.weight=0.0" for end in ("", "_local")
    ),
    "xvlm_itc": ("--config.losses={'itc': {'weight': 1.0}}", "--config.model.head.scores=itc"),
}
OF_METHODS = {
    name: Run(
        name,
        config,
        method.base,
        tool="evaluate" if config.startswith("eval/") else "train",
        evals=EVALS.get(key, {}),
        flags=FLAGS.get(name, ()),
    )
    for key, method in METHODS.items()
    for name, config in method.scenes.items()
}
CLIP = OF_METHODS["clip"]
CLIP_MEAN = Run("clip_mean", "scenes/clip:pooling=mean")
CLIP_FROZEN = CLIP_MEAN._replace(name="clip_frozen")
PAIRS_ALONE = f"scenes/hard_images:steps={finetuning.RELATION_STEPS}"
RELATIONS = [
    Run("hard_images", PAIRS_ALONE, "clip"),
    Run("relations", "negclip:hard_images", "hard_images"),
]
PAIRS = "pairs=24000"  # pairs of images with stored features
VECTORS = "scenes/text_vectors:connector=mlp2x_gelu,steps=400"
SUFFIXES = {"clip_mean": "", "relations_mean": "_relations"}  # base of heads -> end of their names
AT_CHANCE = ("xvlm", "xvlm_itc")  # on swapped attributes: no gain that images could explain
# Part k: methods and their controls. NegCLIP's negatives on the scenes need no balance: a blind
# classifier is right in 49 % of them.
BLIND = ("clip_ft", "hn", "hp_hn", "clip_ft_400", "negclip")
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
NEGATIONS: dict[str, dict[str, object]] = {  # run -> option `negation` of its benchmarks
    "negation_none": {},
    "negation_1.9": {"strength": 1.9},
    "negation_1.9_a": {"strength": 1.9, "phrase": "a {}"},
    "negation_8": {"strength": 8.0},
    "negation_8_a": {"strength": 8.0, "phrase": "a {}"},
}


def runs(part: str) -> list[Run]:
    """Runs of a part, without seeds; base runs come first."""
    return {
        "a": lambda: [CLIP, *_of("clip_ft_400", "negclip", "clip_ft_1200"), *RELATIONS],
        "b": lambda: [CLIP, *RELATIONS, *_hard_positives("clip"), *_hard_positives("relations")],
        "c": lambda: [run.in_world("scenes-hues") for run in _of("clip", "clip_ft", "hn", "hp_hn")],
        "d": _heads,
        "e": _synonyms,
        "f": _methods,
        "g": _geometry,
        "h": lambda: [CLIP_FROZEN, *_captioners("captioner", "captioner_pooled", "captioner_any")],
        "i": lambda: [CLIP_FROZEN, *_llava(""), *_llava("pooled")],
        "j": lambda: [CLIP_FROZEN, *_captioners("captioner"), *_of("vlm2vec", "vlm2vec_plain")],
        "k": _blind,
        "l": _sentences,
        "m": _published_decoder,
        "n": _binding,
    }[part]()


def _of(*names: str) -> list[Run]:
    return [OF_METHODS[name] for name in names]


def _hard_positives(base: str) -> list[Run]:
    suffix = "" if base == "clip" else f"_{base}"
    names = ("clip_ft", *(name for key in ("hn", "hp_hn") for name in METHODS[key].scenes))
    return [run._replace(name=f"{run.name}{suffix}", base=base) for run in _of(*names)]


def _synonyms() -> list[Run]:
    # there 800 steps on pairs teach relations in every seed
    pairs = Run("hard_images", "scenes/hard_images:steps=800", "clip")
    of_b = [pairs if run.name == pairs.name else run for run in runs("b")]
    return [run.in_world("scenes-synonyms") for run in of_b]


def _geometry() -> list[Run]:
    config = "eval/all:sets=scenes_geometry"
    of_heads = [run for run in _heads() if run.name in ("clip_mean", "features_dcsm", "dcsm")]
    asked = {"clip": "+scenes_shuffled", "relations": "+scenes_shuffled", "dcsm": ""}
    geometry = [
        Run(f"{base}_geometry", config + more, base, tool="evaluate")
        for base, more in asked.items()
    ]
    return [CLIP, *RELATIONS, *of_heads, *geometry]


def _captioners(*names: str) -> list[Run]:
    one = OF_METHODS["captioner"]
    config = one.config.replace(",relations=1", "")
    more = {"captioner_any": one._replace(name="captioner_any", config=config)}
    return [(OF_METHODS | more)[name] for name in names]


def _llava(select: str) -> list[Run]:
    """Runs of both stages of a miniature LLaVA."""
    suffix, arguments = (f"_{select}", f",select={select}") if select else ("", "")
    first = Run(f"llava_stage1{suffix}", f"scenes/llava:stage=1{arguments}", CLIP_FROZEN.name)
    config = OF_METHODS["llava"].config + arguments
    return [first, Run(f"llava{suffix}", config, first.name)]


def _texts(name: str, source: str, flag: str) -> Run:
    """A run that stores the negatives of a method."""
    return Run(name, OF_METHODS[source].config, tool="texts", flags=(flag,))


def _permuted(run: Run) -> Run:
    """The same with the images of other captions."""
    flags = (*run.flags, PERMUTED_FLAGS.get(run.name, PERMUTED))
    return run._replace(name=f"{run.name}_permuted", flags=flags)


def _blind() -> list[Run]:
    """Runs of part k: each method as it is, with the images of other captions, with negatives that
    a blind classifier cannot tell from captions, and with both changes; HN with fewer negatives."""
    paired, texts = _of(*BLIND), []
    for share in BALANCES:
        # the negatives of HP+HN are those of HN
        texts.append(_texts(f"texts_{share}", "hn", f"--balance={share / 100}"))
        paired += [
            run._replace(name=f"{run.name}_balanced_{share}", texts=f"texts_{share}")
            for run in _of("hn", "hp_hn")
        ]
    # as many negatives as the filter leaves of HN's for 52 %, without a look at their texts
    few = _texts("texts_random", "hn", "--keep=.45")
    random = [few, OF_METHODS["hn"]._replace(name="hn_random", texts=few.name)]
    return [CLIP, *texts, *paired, *map(_permuted, paired), *random]


def _methods() -> list[Run]:
    """Part f: methods and controls with the right images, with permuted ones, and with balanced
    negatives; texts that methods draw; evaluations of options and details."""
    elsewhere = ("clip", *BLIND, *HEADS, "captioner", "llava", "vlm2vec", "llm2vec")
    plain = [
        run
        for key, method in METHODS.items()
        if key not in elsewhere
        for run in _of(*method.scenes)
    ]
    plain += [
        OF_METHODS["clip_ft"],
        OF_METHODS["xvlm"]._replace(name="xvlm_itc", flags=FLAGS["xvlm_itc"], evals={}),
        Run("leftright_siglip_none", "leftright:family=siglip,negatives=none", "siglip"),
        Run("leftright_siglip", "leftright:family=siglip", "siglip"),
    ]
    goal = f"--balance={BALANCES[-1] / 100}"
    texts = [_texts(f"texts_{name}", name, "--keep=1") for name in study_columns.DRAWN]
    balanced, random = [], []
    for name, of in BALANCED.items():
        texts += [_texts(of.texts, of.source, goal)]
        texts += [_texts(of.random, of.source, f"--keep={of.kept}")]
        run = OF_METHODS[name]._replace(kinds=of.kinds)
        balanced.append(run._replace(name=f"{name}_balanced_52", texts=of.texts))
        random.append(run._replace(name=f"{name}_random", texts=of.random))
    # heads on the pairs of their stored features, with their images
    live = [
        run._replace(config=run.config.replace(":", f":{PAIRS},", 1))
        for run in _of(*OF_TABLE)
        if run.name in HEADS
    ]
    blind = [
        run
        for run in _of("clip_ft", "siglip_ft", *OF_TABLE)
        if run.name not in (*BLIND[1:], *HEADS, *AT_CHANCE) and run.tool == "train"
    ]
    permuted = map(_permuted, (*blind, *balanced, *live))
    further = _further_evaluations()
    return [CLIP, CLIP_MEAN, *plain, *texts, *balanced, *random, *permuted, *further]


def _further_evaluations() -> list[Run]:
    """CLIP on captions with and without a negation, which is taken out of texts; three models on
    wrong details."""
    made = []
    for name, how in NEGATIONS.items():
        options = {"split": "test"} | ({"negation": dict(how)} if how else {})
        made.append((name, "clip", dict.fromkeys(_cases(*study_columns.OF_NEGATION), options)))
    for base in ("clip", "clip_ft", "csclip"):
        evals = {each: {"split": "test"} for each in _cases("half-truths", "confusion")}
        made.append((f"{base}_details", base, evals))
    return [
        Run(name, "eval/all:sets=scenes", base, tool="evaluate", flags=(f"--config.evals={evals}",))
        for name, base, evals in made
    ]


def _bases() -> list[Run]:
    """Base models of heads; mean pooling, so that their loss trains the patch tokens."""
    return [
        CLIP_MEAN,
        Run("hard_images_mean", f"{PAIRS_ALONE},pooling=mean", "clip_mean"),
        Run("relations_mean", "negclip:hard_images,pooling=mean", "hard_images_mean"),
    ]


def _heads() -> list[Run]:
    """Runs of part d: base models, stored features, and heads trained on them.

    RoPE inside the image tower requires training that tower. Text vectors come from the relations
    model.
    """
    plain = [
        OF_METHODS[name]._replace(name=f"{name}_plain", config=f"{name}:phrases=plain,steps=500")
        for name in ("pacl", "sparc", "labclip")
    ]
    heads = [*(run for key in HEADS for run in _of(*METHODS[key].scenes)), *plain]
    unlocked = {"pacl_unlocked": "", "pacl_qk_1d": ",rope=qk_1d", "pacl_qk_2d": ",rope=qk_2d"}
    made = [*_bases(), Run("vectors", "scenes/text_vectors", "relations_mean", tool="vectors")]
    for base, suffix in SUFFIXES.items():
        features = dict[tuple[str, str], Run]()  # of a head's config and phrases
        of_base = []
        for run in heads:
            head, _, arguments = run.config.partition(":")
            phrases = next((f"{a}," for a in arguments.split(",") if a.startswith("phrases=")), "")
            stored = Run(f"features_{run.name}", f"{head}:{phrases}{PAIRS}", tool="features")
            of_base.append(run._replace(features=features.setdefault((head, phrases), stored).name))
        for name, arguments in unlocked.items():
            config = f"pacl:image_tower=unlocked,steps=125{arguments}"
            of_base.append(Run(name, config, evals=HEAD_EVALS))
        of_base.append(OF_METHODS["text_vectors"]._replace(vectors="vectors"))
        made += [
            run._replace(
                name=f"{run.name}{suffix}",
                base=base,
                features=run.features and f"{run.features}{suffix}",
            )
            for run in (*features.values(), *of_base)
        ]
    return made


def _sentences() -> list[Run]:
    """Runs of part l: text vectors of MiniLM, their connector and heads on the towers of part d."""
    heads = {"": "", "_pacl": ",head=pacl", "_pacl_1d": ",head=pacl,rope=feature_1d"}
    vectors = Run("minilm_vectors", "scenes/text_vectors", tool="sentences", evals=HEAD_EVALS)
    one = Run("minilm", VECTORS, vectors=vectors.name, evals=HEAD_EVALS)
    trained = [
        one._replace(name=f"minilm{name}{suffix}", config=f"{VECTORS}{more}", base=base)
        for base, suffix in SUFFIXES.items()
        for name, more in heads.items()
    ]
    return [*_bases(), vectors, *trained]


def _published_decoder() -> list[Run]:
    # few steps: a row takes .2 s of a core
    stage = "studies/smollm:stage={},steps={},batch=32,count={}"
    first = Run("smollm_stage1", stage.format(1, 100, 16), CLIP_MEAN.name)
    return [CLIP_MEAN, first, Run("smollm", stage.format(2, 200, 200), first.name)]


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


def plan(parts: Sequence[str], seeds: int) -> list[Run]:
    """All runs of the parts with all seeds, each once, base runs first.

    seeds: of every run but those of study_columns.SEEDS."""
    unique = {(run.name, seed): run for part in parts for run, seed in _with_seeds(part, seeds)}

    def named(run: str, seed: int) -> str:
        return run and f"{run}-{min(seed, study_columns.seeds_of(run, seeds) - 1)}"

    names = ("name", "base", "features", "vectors", "texts")
    return [
        run._replace(seed=seed, **{each: named(getattr(run, each), seed) for each in names})
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
    done, current = study_results.read_values(values), dict[str, set[str]]()  # run -> devices
    for run in todo:
        base = current.get(run.base, set()) if run.base in done else {ANY}
        current[run.name] = {
            kept.device or ANY
            for kept in done.get(run.name, {}).values()
            if kept.config in ("", run.config) and {ANY, kept.device} & base
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
