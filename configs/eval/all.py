"""Published evaluation sets, and those of the scenes, in one run.

  python -m vlc_jax.main --mode eval --workdir runs/suite \\
    --config configs/eval/all.py:weights=FILE,tokenizer=FILE,root=DIR,sets=vg_relation+sugarcrepe

Arguments: root (the folder of all sets; vlc-jax benchmarks --root DIR prints the installed ones,
where to get the others, and the argument `sets`); sets (names joined by +; "all" is every published
set, "scenes" all of the embedded world, scenes_geometry its diagnostics; coco_shuffled,
flickr30k_shuffled and scenes_shuffled are retrieval under five shuffles of the texts and three of
the images); run (the workdir of a run, its model and preprocessing) or weights, family, variant,
tokenizer and size as in configs/eval/zero_shot.py; count (cases of each set or subset, 0 for all);
tie (strict, first_index, last_index or half); geometry (some of the sets: also cosines of the two
images of a pair, docs/benchmarks.md); wording (of published captions: dcsm, DCSM's for its head, or
dcsm_baseline, its for other models; with tie=first_index its numbers); negation (strength of the
correction of texts that negate, docs/methods.md; 0 for none); segments (patches or crops: scores by
segments of texts, docs/methods.md) and segment_weight (0: that of the regions); tagger (parts of
speech for the order sets). A killed evaluation resumes; existing results are kept.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax import errors
from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, pretrained, scenes

SETS = (
    "vg_relation", "vg_attribution", "coco_order", "flickr30k_order", "bivlc", "bla", "ccneg",
    "clevr_bind", "coco_counterfactuals", "cola", "colorfoil", "colorswap", "crepe_systematicity",
    "crepe_productivity", "eqben", "eqben_subset", "eqben_full", "half_truths", "replace", "swap",
    "imagecode", "coco_retrieval", "flickr30k_retrieval", "docci", "urban1k", "mmvp", "mmvp_vlm",
    "naturalbench_retrieval", "ncd_squares", "negbench", "negbench_retrieval", "negrefcocog",
    "pope", "reporting_bias", "coco_spatial_one", "coco_spatial_two", "gqa_spatial_one",
    "gqa_spatial_two", "spec", "sugarcrepe", "sugarcrepe_pp", "svo_probes", "valse", "vismin",
    "vl_checklist", "vsr", "whatsup_a", "whatsup_b", "whatsup_a_two_way", "whatsup_b_two_way",
    "winoground",
)  # fmt: skip
OTHERS = (  # further names of the argument `sets`
    "coco_shuffled",
    "flickr30k_shuffled",
    "scenes",
    "scenes_shuffled",
    "scenes_geometry",
    "all",
)
TEXT_SHUFFLES = (
    "shuffle_nouns_and_adjectives",
    "shuffle_all_but_nouns_and_adjectives",
    "shuffle_within_trigrams",
    "shuffle_trigrams",
    "shuffle_words",
)
IMAGE_SHUFFLES = ("rows_4", "cols_4", "patches_9")


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        **pretrained.ARGUMENTS,
        family="clip",
        variant="B/32",
        size=224,
        run="",
        root="",
        sets="",
        count=0,
        tie="strict",
        geometry="",
        wording="",
        negation=0.0,
        segments="",
        segment_weight=0.0,
        tagger=pretrained.TAGGER,
    )
    if not args.sets:
        raise ValueError(
            "sets=... is missing: names joined by +, scenes, or all; "
            "vlc-jax benchmarks --root DIR prints the installed ones"
        )
    config = default.get_config()
    with config.unlocked():
        pretrained.use_run_or_weights(config, args)
        config.evals = ConfigDict(_evals(args, config.text.scenes.world))
    return config


def _evals(args: SimpleNamespace, world: str) -> dict[str, dict]:
    count = {"count": args.count} if args.count else {}
    wording = {"wording": args.wording} if args.wording else {}
    shared = {"root": args.root, **count, **wording}
    evals: dict[str, dict] = {}
    for name in args.sets.split("+"):
        if name == "all":
            evals |= {each: pretrained.published_set(each, shared, args.tagger) for each in SETS}
        elif name == "scenes":
            sizes = count | ({"candidates": args.count} if args.count else {})
            evals |= scenes.evaluations("test", world=world, **sizes)
        elif name == "scenes_geometry":
            evals |= scenes.geometry("test", world=world, **count)
        elif name == "scenes_shuffled":
            options = {"split": "test", "world": world, "tagger": f"scenes:{world}", **count}
            evals |= _shuffled("scenes_retrieval", options)
        elif name.endswith("_shuffled") and (reader := f"{name[:-9]}_retrieval") in SETS:
            evals |= _shuffled(reader, shared | {"tagger": args.tagger})
        else:
            errors.known("set", name, (*SETS, *OTHERS), ValueError)
            evals[name] = pretrained.published_set(name, shared, args.tagger)
    negation = {"negation": {"strength": args.negation}} if args.negation else {}
    if args.segment_weight and not args.segments:
        raise ValueError("segment_weight is of segments: say segments=patches or crops, too")
    segments = {"segments": args.segments} if args.segments else {}
    if args.segment_weight:
        segments["segments"] = {"regions": args.segments, "weight": args.segment_weight}
    more = {"tie": args.tie, **negation, **segments}
    evals = {name: {**options, **more} for name, options in evals.items()}
    for name in filter(None, args.geometry.split("+")):
        errors.known("set of geometry", name, evals, ValueError)
        evals[name]["geometry"] = True
    return evals


def _shuffled(reader: str, options: dict) -> dict[str, dict]:
    """Retrieval under every shuffle."""
    kinds = {"text": TEXT_SHUFFLES, "image": IMAGE_SHUFFLES}
    return {
        f"{reader}_{shuffle}": {"reader": reader, f"{kind}_shuffle": shuffle, **options}
        for kind, shuffles in kinds.items()
        for shuffle in shuffles
    }
