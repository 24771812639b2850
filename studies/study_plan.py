"""Runs of the study by part.

RUNS has the methods on the scenes and what they start from; the end of a name changes a run: other
images or negatives, another base or world (`named`). A part lists runs, and has what they need.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from studies import study_binding, study_columns, study_results
from vlc_jax.configs.common import finetuning
from vlc_jax.configs.common.methods import METHODS

PARTS = {
    "a": "the bag of words, and what cures it",
    "b": "hard positives, from CLIP and from a model that knows relations",
    "d": "heads on frozen towers, of the bag of words and of the model that knows relations",
    "e": "part b in a world whose captions say synonyms",
    "f": "the other methods",
    "g": "what the embeddings of the bag of words and of the model that knows relations are like",
    "h": "decoders over the frozen tokens of the bag of words",
    "i": "what a miniature LLaVA over the bag of words answers",
    "j": "a decoder that knows relations as an embedder, with a question and without",
    "k": "hard negatives without the image, and without what gives them away",
    "l": "vectors of a published sentence encoder on frozen towers",
    "n": "what makes binding: captions by density, completeness and saliency",
    "o": "the share of synonyms in captions that hard negatives need",
    "p": "real photographs: Flickr8k",
    "q": "left and right: text alone, and decoders, over one tower",
}
OWN = "".join(part for part in PARTS if part not in "lpq")  # without files that are not here
ANY = "any device"
WITH_VALUES = ("train", "evaluate", "texts", "tables")  # tools of runs that have results


class Run(NamedTuple):
    """One run of a study.

    name: its folder in OUT.
    config: short name of a config, with arguments.
    base: run whose weights it starts from.
    features, vectors: runs whose stored features, or text vectors, it trains on.
    tool: train | evaluate | features | vectors | texts | sentences | tables. evaluate runs further
      benchmarks on `base`; features and vectors store those of `base`; texts stores balanced
      negatives of the config, sentences text vectors of MiniLM, tables those of photographs.
    evals: benchmark -> number of cases, instead of the config's benchmarks.
    split: what it is evaluated on.
    texts: run whose balanced negatives, or tables of photographs, it reads.
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
PAIRS = "pairs=24000"  # pairs of images with stored features
PAIRS_ALONE = f"scenes/hard_images:steps={finetuning.RELATION_STEPS}"
PERMUTED = "--config.input.source_options.images=permuted"
PERMUTED_FLAGS = {"clic": "--config.input.source_options.base_options.images=permuted"}
NO_PHRASES = tuple(f"--config.losses.sigmoid_phrases{end}.weight=0.0" for end in ("", "_local"))
AT_CHANCE = ("xvlm", "xvlm_itc")  # on swapped attributes: no gain that images could explain
# Part k: methods and their controls. NegCLIP's negatives on the scenes need no balance: a blind
# classifier is right in 49 % of them.
BLIND = ("clip_ft", "hn", "hp_hn", "clip_ft_400", "negclip")
# Methods with balanced negatives -> end of the runs that store them, and the kinds of CE-CLIP's,
# which has a threshold for each. HP+HN has HN's; FSC-CLIP draws three of DeGLA's four.
BALANCED: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("hn", "hp_hn"), ("", ())),
    "ce_clip": ("_each", ("scenes_replace", "scenes_reverse", "scenes_swap")),
    **dict.fromkeys(("degla", "fsc_clip_local"), ("_four", ())),
}
TEXTS = {  # runs that store negatives -> their method, and the goal of the filter (nearly chance)
    "texts_52": ("hn", "--balance=0.52"),
    "texts_52_each": ("ce_clip", "--balance=0.52"),
    "texts_52_four": ("degla", "--balance=0.52"),
    # as many as the filter leaves for 52 %, without a look at their texts
    "texts_random": ("hn", "--keep=.45"),
    "texts_random_each": ("ce_clip", "--keep=0.6"),
    "texts_random_four": ("degla", "--keep=0.39"),
    **{f"texts_{name}": (name, "--keep=1") for name in study_columns.DRAWN},
}
MINILM_HEADS = {"": "", "_pacl": ",head=pacl", "_pacl_1d": ",head=pacl,rope=feature_1d"}
OF_METHODS = {
    name: Run(
        name,
        config,
        method.base,
        tool="evaluate" if config.startswith("eval/") else "train",
        evals=EVALS.get(key, {}),
    )
    for key, method in METHODS.items()
    for name, config in method.scenes.items()
}


def _bases_and_controls() -> Iterator[Run]:
    """Models that others start from, of mean pooling if their loss trains the patch tokens, and
    controls and variants of methods."""
    yield Run("hard_images", PAIRS_ALONE, "clip")
    yield Run("relations", "negclip:hard_images", "hard_images")
    yield Run("clip_mean", "scenes/clip:pooling=mean")
    yield Run("hard_images_mean", f"{PAIRS_ALONE},pooling=mean", "clip_mean")
    yield Run("relations_mean", "negclip:hard_images,pooling=mean", "hard_images_mean")
    yield Run("clip_frozen", "scenes/clip:pooling=mean")
    itc = ("--config.losses={'itc': {'weight': 1.0}}", "--config.model.head.scores=itc")
    yield OF_METHODS["xvlm"]._replace(name="xvlm_itc", flags=itc, evals={})
    yield OF_METHODS["siglip_ft"]._replace(flags=NO_PHRASES)
    yield Run("leftright_siglip_none", "leftright:family=siglip,negatives=none", "siglip")
    yield Run("leftright_siglip", "leftright:family=siglip", "siglip")
    any_captions = OF_METHODS["captioner_800"].config.replace(",relations=1", "")
    yield OF_METHODS["captioner_800"]._replace(name="captioner_any", config=any_captions)
    yield Run("llava_stage1", "scenes/llava:stage=1", "clip_frozen")
    yield Run("llava_stage1_pooled", "scenes/llava:stage=1,select=pooled", "clip_frozen")
    pooled = f"{OF_METHODS['llava'].config},select=pooled"
    yield Run("llava_pooled", pooled, "llava_stage1_pooled")


def _heads() -> Iterator[Run]:
    """Heads on stored features, which those of the same config and phrases share; vectors of
    texts."""
    plain = [
        OF_METHODS[name]._replace(name=f"{name}_plain", config=f"{name}:phrases=plain,steps=500")
        for name in ("pacl", "sparc", "labclip")
    ]
    features = dict[tuple[str, str], str]()
    for run in (*(OF_METHODS[name] for key in HEADS for name in METHODS[key].scenes), *plain):
        head, _, arguments = run.config.partition(":")
        phrases = "".join(f"{a}," for a in arguments.split(",") if a.startswith("phrases="))
        stored = features.setdefault((head, phrases), f"features_{run.name}")
        yield Run(stored, f"{head}:{phrases}{PAIRS}", "clip_mean", tool="features")
        yield run._replace(features=stored)
    yield Run("vectors", "scenes/text_vectors", "relations_mean", tool="vectors")
    yield OF_METHODS["text_vectors"]._replace(vectors="vectors")
    yield Run("minilm_vectors", "scenes/text_vectors", tool="sentences", evals=HEAD_EVALS)
    plain = OF_METHODS["text_vectors"]._replace(vectors="minilm_vectors")
    for end, head in MINILM_HEADS.items():
        yield plain._replace(name=f"minilm{end}", config=plain.config + head)


def _further() -> Iterator[Run]:
    """Runs that store negatives, and evaluations of what embeddings are like."""
    for name, (method, flag) in TEXTS.items():
        yield Run(name, OF_METHODS[method].config, tool="texts", flags=(flag,))
    for base in ("clip", "relations"):
        config = "eval/all:sets=scenes_geometry+scenes_shuffled"
        yield Run(f"{base}_geometry", config, base, tool="evaluate")


def _binding() -> Iterator[Run]:
    """Runs of part n: a CLIP for each kind of captions; of some, CLIP-FT and HN with the same
    captions."""
    steps = study_binding.STEPS
    sizes = (f"--config.batch_size={study_binding.BATCH}", f"--config.eval.every={steps}")
    for cell in study_binding.CELLS:
        first = Run(cell.name, f"scenes/clip:steps={steps}", evals=study_binding.EVALS)
        yield first._replace(flags=(*sizes, cell.captions))
        for name in ("clip_ft", "hn") if cell in study_binding.FINETUNED else ():
            end = {"config": name, "base": cell.name, "flags": (cell.captions,)}
            yield first._replace(name=f"{cell.name}_{name}", **end)


def _shares() -> Iterator[Run]:
    """Runs of part o: one CLIP, finetuned with captions of each share of synonyms."""
    base = Run(f"{study_columns.SHARE}_clip", "scenes/clip", evals=_cases("Orig A", "Orig B"))
    yield base
    draw = "--config.input.negatives.options.scenes_replace.draw=base_words"  # no rare synonym
    common = {"config": "hn", "base": base.name, "flags": (draw,)}
    yield base._replace(name=f"{study_columns.SHARE}_hn_common", **common)
    for method, share in itertools.product(("hn", "clip_ft"), study_columns.SHARES):
        captions = finetuning.CAPTIONS | {"synonyms": share}
        flag = f"--config.input.scenes.caption_options={captions}"
        name = f"{study_columns.SHARE}_{method}_{share}"
        yield base._replace(name=name, config=method, base=base.name, flags=(flag,))


def _photographs() -> Iterator[Run]:
    """Runs of part p."""
    config, tables = "studies/photographs", "photographs"
    yield Run(tables, config, tool="tables")
    yield Run("photo_clip", config, texts=tables)
    for name, words in (study_columns.PHOTOGRAPHS | study_columns.RATES).items():
        tool = "train" if "method" in words else "evaluate"
        base = "" if words.startswith("method=clip,") else "photo_clip"
        rate = f"--config.optimizer.learning_rate={name.rpartition('_')[2]}"
        flags = (rate,) if name in study_columns.RATES else ()
        yield Run(name, f"{config}:{words}", base, tool=tool, texts=tables, flags=flags)


def _left_right() -> Iterator[Run]:
    """Runs of part q, over the image tower of the decoders: both trained further, its text tower or
    vectors of MiniLM, with and without left and right exchanged in negatives; pairs of images that
    it takes for alike; M3ID with the weights of a first and of a 13th word."""
    base, evals = "clip_frozen", _cases("attribute swap", "relation swap", "What'sUp pair")
    captions, on_vectors = finetuning.CAPTIONS | {"place": 0.5}, OF_METHODS["text_vectors"].config
    places = (
        f"--config.input.scenes.caption_options={captions}",
        "--config.input.hard_images=0",
        "--config.input.scenes.hard_images=()",
    )
    exchanged = (
        "--config.input.negatives.count=1",
        "--config.input.negatives.generators={'left_right': 1.0}",
        "--config.losses={'negclip': {'weight': 1.0}}",
    )
    vectors = Run("minilm_places_vectors", on_vectors, tool="sentences", evals=evals)
    yield vectors._replace(flags=(*places, *exchanged))
    unlocked = "image_tower=unlocked"
    for end, flags in {"": places, "_exchanged": (*places, *exchanged)}.items():
        config = f"leftright:{unlocked},negatives={'leftright' if end else 'none'},pooling=mean"
        yield Run(f"unlocked{end}", f"{config},steps=400", base, evals=evals)
        more = {"vectors": vectors.name, "evals": evals, "flags": flags}
        yield Run(f"unlocked_minilm{end}", f"{on_vectors},{unlocked}", base, **more)
    shared = {"split": "test", "count": 2000}
    pairs = {"scenes_pair_geometry": {"reader": "scenes_whatsup", "geometry": True, **shared}}
    decodings = {f"m3id_t{t}": {"decoding": "m3id", "first_step": t} for t in (1, 13)}

    def keywords(name: str, **options: bool) -> dict[str, dict[str, object]]:
        reader = {"reader": f"scenes_{name}", "protocol": "keywords", **shared, **options}
        return {f"scenes_{name}_{k}": reader | v for k, v in ({"greedy": {}} | decodings).items()}

    for name in (base, "captioner"):
        run = Run(f"{name}_pairs", "eval/all:sets=scenes_geometry", name, tool="evaluate")
        yield run._replace(flags=(f"--config.evals={pairs}",))
    short = keywords("attribute_swap") | keywords("relation_swap") | keywords("negation")
    run = Run("llava_m3id", "eval/llava:sets=scenes_negation,protocols=keywords", "llava")
    yield run._replace(tool="evaluate", flags=(f"--config.evals={short}",))
    kinds = "--config.input.scenes.conversations=(('describe', 0.6), ('question', 0.4))"
    flags = (kinds, f"--config.evals={keywords('attribute_swap', described=True)}")
    yield OF_METHODS["llava"]._replace(name="llava_describes", base="llava", flags=flags)


BINDING = {run.name: run for run in _binding()}
RUNS = OF_METHODS | BINDING
RUNS |= (SHARES := {run.name: run for run in _shares()})
OF_PARTS = (_bases_and_controls, _heads, _further, _photographs, _left_right)
RUNS |= {run.name: run for part in OF_PARTS for run in part()}


def _permuted(run: Run) -> Run:
    """With the images of other captions; a head is trained on pairs with their images."""
    flags = (*run.flags, PERMUTED_FLAGS.get(run.name, PERMUTED))
    config = run.config.replace(":", f":{PAIRS},", 1) if run.features else run.config
    return run._replace(config=config, features="", flags=flags)


def _in_synonyms(run: Run) -> Run:
    """In the world whose captions say synonyms, where every base has a run, too."""
    config = f"{run.config}{',' if ':' in run.config else ':'}world=scenes-synonyms"
    return run._replace(config=config, base=run.base and f"{run.base}_synonyms")


def _on_relations(run: Run) -> Run:
    """From the model that knows relations."""
    features = run.features and f"{run.features}_relations"
    return run._replace(base=run.base.replace("clip", "relations"), features=features)


def _with_texts(kind: str) -> Callable[[Run], Run]:
    def change(run: Run) -> Run:
        end, kinds = BALANCED[run.name]
        return run._replace(texts=f"texts_{kind}{end}", kinds=kinds)

    return change


CHANGES: dict[str, Callable[[Run], Run]] = {  # end of a name -> what it changes
    "_synonyms": _in_synonyms,
    "_permuted": _permuted,
    "_relations": _on_relations,
    "_random": _with_texts("random"),
    "_balanced_52": _with_texts("52"),
}


def named(name: str) -> Run:
    """The run of a name."""
    if name in RUNS:
        return RUNS[name]
    end = next(end for end in CHANGES if name.endswith(end))
    return CHANGES[end](named(name.removesuffix(end)))._replace(name=name)


def _ends(names: Sequence[str], *ends: str) -> list[str]:
    return [f"{name}{end}" for end in ends for name in names]


def _wanted() -> dict[str, Sequence[str]]:
    """The runs of each part, without what they start from."""
    scenes = {key: [*method.scenes] for key, method in METHODS.items()}
    hard = ["clip_ft", *scenes["hn"], *scenes["hp_hn"]]
    kept = ("clip_ft", "hn", "hp_hn", "hp_hn_swap_only", "hp_hn_replace_only", "relations")
    stored = [name for key in HEADS for name in scenes[key]]
    stored += ["pacl_plain", "sparc_plain", "labclip_plain", "text_vectors"]
    elsewhere = (*BLIND, *HEADS, "captioner", "llava", "vlm2vec", "llm2vec")
    others = ["clip_ft", "xvlm_itc", "leftright_siglip_none", "leftright_siglip"]
    balanced = _ends([name for name, (end, _) in BALANCED.items() if end], "_balanced_52")
    others += [name for key in scenes if key not in elsewhere for name in scenes[key]] + balanced
    trained = [name for name in study_columns.OF_TABLE if OF_METHODS[name].tool == "train"]
    blind = ["clip_ft", "siglip_ft", *trained, *balanced]
    hn_runs = [*BLIND, *_ends(["hn", "hp_hn"], "_balanced_52")]
    return {
        "a": ("clip_ft_400", "negclip", "clip_ft_1200", "relations"),
        "b": [*hard, *_ends(kept[:-1], "_relations"), "relations"],
        "d": [*stored, *_ends(["dcsm", "pacl", "text_vectors"], "_relations")],
        "e": _ends(["hn", "hp_hn_w0", "hp_hn"], "_synonyms"),
        "f": [
            *others,
            *(name for name, (method, _) in TEXTS.items() if method != "hn"),
            *_ends(["ce_clip", "degla", "fsc_clip_local"], "_random"),
            *_ends([name for name in blind if name not in (*BLIND[1:], *AT_CHANCE)], "_permuted"),
        ],
        "g": ("clip_geometry", "relations_geometry"),
        "h": ("captioner", "captioner_800", "captioner_pooled", "captioner_any"),
        "i": ("llava", "llava_pooled"),
        "j": ("vlm2vec", "vlm2vec_plain"),
        "k": ["clip", *_ends(hn_runs, "", "_permuted"), "hn_random"],
        "l": _ends(["minilm", "minilm_pacl", "minilm_pacl_1d"], "", "_relations"),
        "n": [*BINDING],
        "o": [*SHARES],
        "p": ("photo_clip", *study_columns.PHOTOGRAPHS, *study_columns.RATES),
        "q": [run.name for run in _left_right()],
    }


WANTED = _wanted()


def runs(part: str) -> list[Run]:
    """Runs of a part and what they need, without seeds; base runs come first."""
    found = dict[str, Run]()

    def add(name: str) -> None:
        run = named(name)
        for needed in run.needed:
            add(needed)
        found.setdefault(name, run)

    for name in WANTED[part]:
        add(name)
    return [*found.values()]


def plan(parts: Sequence[str], seeds: int) -> list[Run]:
    """All runs of the parts with all seeds, each once, base runs first.

    seeds: of every run but those of study_columns.SEEDS."""
    unique = {
        (run.name, seed): run
        for part in parts
        for run in runs(part)
        for seed in range(study_columns.seeds_of(run.name, seeds))
    }

    def with_seed(run: str, seed: int) -> str:
        return run and f"{run}-{min(seed, study_columns.seeds_of(run, seeds) - 1)}"

    names = ("name", "base", "features", "vectors", "texts")
    return [
        run._replace(seed=seed, **{each: with_seed(getattr(run, each), seed) for each in names})
        for (_, seed), run in unique.items()
    ]


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
    names = [run.name for run in plan(part, results.seeds)]
    counted = Counter(device for name in names for device in results.by_device(name))
    return max(sorted(counted), key=counted.__getitem__, default="")
