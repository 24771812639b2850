"""Names and columns of the tables of a study."""

from typing import NamedTuple

LABELS = {  # run -> its name in tables
    "clip": "CLIP",
    "clip_ft": "CLIP-FT",
    "clip_ft_400": "CLIP-FT, 400 steps",
    "clip_ft_1200": "CLIP-FT, 1,200 steps",
    "negclip": "NegCLIP, 400 steps",
    "hard_images": "relation pairs alone",
    "texts_60": "HN's negatives, balanced to 60 %",
    "texts_52": "HN's negatives, balanced to 52 %",
    "texts_random": "HN's negatives, 45 % at random",
    "hn_random": "HN, 45 % of its negatives at random",
    "relations": "relation pairs, then NegCLIP + hard images, 400 steps",
    "hn": "HN",
    "hp_hn": "HP+HN",
    "hp_hn_w0": "HP+HN, weight 0 (HP only)",
    "hp_hn_w0.25": "HP+HN, weight .25",
    "hp_hn_w0.5": "HP+HN, weight .5",
    "hp_hn_w0.75": "HP+HN, weight .75",
    "hp_hn_swap_only": "HP+HN, swap only",
    "hp_hn_replace_only": "HP+HN, replace only",
    "clip_mean": "cosine of the towers",
    "relations_mean": "cosine of the towers",
    "dcsm": "DCSM",
    "dcsm_grid": "DCSM, grid",
    "dcsm_no_rows": "DCSM without vectors of functional words",
    "dcsm_varied": "DCSM, varied captions",
    "pacl": "PACL",
    "pacl_feature_1d": "PACL + RoPE",
    "pacl_feature_2d": "PACL + RoPE by row and column",
    "pacl_unlocked": "PACL, image tower trained",
    "pacl_qk_1d": "PACL + RoPE inside the tower, trained",
    "pacl_qk_2d": "PACL + RoPE inside the tower by row and column, trained",
    "pacl_plain": "PACL, plain captions",
    "sparc": "SPARC",
    "pooled": "MaxSim",
    "sparc_plain": "SPARC, plain captions",
    "labclip": "LABCLIP",
    "labclip_plain": "LABCLIP, plain captions",
    "siglip": "SigLIP",
    "crepe_swap": "CREPE-swap",
    "crepe_replace": "CREPE-replace",
    "crepe_negate": "CREPE-negate",
    "svlc": "SVLC",
    "svlc_pos": "SVLC+Pos",
    "dac": "DAC",
    "fsc_clip": "FSC-CLIP's loss",
    "tripletclip": "TripletCLIP",
    "conclip": "CoN-CLIP",
    "csclip": "CS-CLIP",
    "clic": "CLIC",
    "ce_clip": "CE-CLIP",
    "read_clip": "READ-CLIP without its T5",
    "degla": "DeGLA",
    "flair": "FLAIR",
    "fsc_clip_local": "FSC-CLIP",
    "c2lip": "C2LIP, from SigLIP",
    "siglip2_dense": "SigLIP 2's dense losses, from SigLIP",
    "siglip_ft": "SigLIP-FT",
    "xvlm_itc": "ITC",
    "xvlm": "ITC and ITM",
    "negation": "CLIP, negation taken out of texts",
    "clip_details": "CLIP",
    "clip_ft_details": "CLIP-FT",
    "csclip_details": "CS-CLIP",
    "negation_none": "cosine",
    "negation_1.9": "strength 1.9, `{}`",
    "negation_1.9_a": "strength 1.9, `a {}`",
    "negation_8": "strength 8, `{}`",
    "negation_8_a": "strength 8, `a {}`",
    "crops": "CLIP, segments of texts against crops",
    "crops_half": "the same, averaged with the cosine of the whole",
    "patches": "CLIP with mean pooling, segments of texts against patches",
    "tflocal": "TFLocal",
    "leftright_none": "CLIP, captions with places",
    "leftright": "the same with left/right negatives",
    "leftright_siglip_none": "SigLIP, captions with places",
    "leftright_siglip": "the same with left/right negatives",
    "clip_geometry": "CLIP",
    "relations_geometry": "relation pairs, then NegCLIP + hard images",
    "dcsm_geometry": "DCSM on towers with mean pooling",
    "text_vectors": "cosine with vectors of texts",
    "clip_frozen": "cosine of the towers",
    "captioner": "decoder on patch tokens, captions of relations",
    "captioner_pooled": "decoder on the embedding alone, captions of relations",
    "captioner_any": "decoder on patch tokens, any captions",
    "vlm2vec": "decoder that knows relations as an embedder, with the question",
    "vlm2vec_plain": "the same, without the question",
    **{
        f"{name}{end}": label + more
        for name, label in (
            ("clip_ft", "CLIP-FT"),
            ("hn", "HN"),
            ("hp_hn", "HP+HN"),
            ("clip_ft_400", "CLIP-FT, 400 steps"),
            ("negclip", "NegCLIP, 400 steps"),
        )
        for end, more in (
            ("_permuted", ", images permuted"),
            ("_balanced_60", ", negatives balanced to 60 %"),
            ("_balanced_60_permuted", ", balanced to 60 %, images permuted"),
            ("_balanced_52", ", negatives balanced to 52 %"),
            ("_balanced_52_permuted", ", balanced to 52 %, images permuted"),
        )
    },
    **{
        f"{name}{end}": f"{label}, {what}"
        for name, label, kept in (
            ("ce_clip", "CE-CLIP", 60),
            ("degla", "DeGLA", 39),
            ("fsc_clip_local", "FSC-CLIP", 39),
        )
        for end, what in (
            ("_balanced_52", "negatives balanced to 52 %"),
            ("_random", f"{kept} % of its negatives at random"),
        )
    },
    "texts_52_each": "CE-CLIP's negatives, balanced to 52 %",
    "texts_random_each": "CE-CLIP's negatives, 60 % at random",
    "texts_52_four": "DeGLA's negatives, balanced to 52 %",
    "texts_random_four": "DeGLA's negatives, 39 % at random",
    "minilm": "cosine with vectors of MiniLM",
    "minilm_pacl": "PACL with vectors of MiniLM",
    "minilm_pacl_1d": "PACL + RoPE with vectors of MiniLM",
}
# Runs with fewer seeds than the others: run -> seeds. SmolLM2 for its cost; MiniLM's vectors are
# those of the same texts for every seed.
SEEDS = {"smollm_stage1": 1, "smollm": 1, "minilm_vectors": 1}
# Methods whose negatives a blind classifier judges as they are drawn, in one seed: 20,000 pairs.
DRAWN = (
    "negclip", "read_clip", "tripletclip", "crepe_swap", "crepe_replace", "crepe_negate", "conclip",
)  # fmt: skip
LABELS |= {f"texts_{name}": LABELS[name].removesuffix(", 400 steps") for name in DRAWN}
LABELS["texts_crepe_replace"] = "CREPE-replace, SVLC, SVLC+Pos, DAC"  # the same negatives
SEEDS |= dict.fromkeys((f"texts_{name}" for name in DRAWN), 1)
PROTOCOLS = {  # part i: suffix of an evaluation's name -> row of its table
    "score": "log probability of the caption",
    "vqascore": "VQAScore",
    "keywords": "keywords in what it writes, greedy",
    "m3id_t0": "keywords, M3ID with t from 0",
    "m3id_t1": "keywords, M3ID with t from 1",
}
TRIPLET = ("original_accuracy", "augmented_accuracy", "brittleness")
HEAD_RUNS = (
    "dcsm", "dcsm_grid", "dcsm_no_rows", "dcsm_varied", "tflocal", "sparc", "pooled",
    "text_vectors", "pacl", "pacl_feature_1d", "pacl_feature_2d", "pacl_unlocked", "pacl_qk_1d",
    "pacl_qk_2d",
)  # fmt: skip
DECODER_RUNS = ["captioner", "captioner_any", "captioner_pooled"]
CAPTION_RUNS = ("labclip", "labclip_plain", "pacl", "pacl_plain", "sparc", "sparc_plain")
SWEEP = ("hp_hn_w0", "hp_hn_w0.25", "hp_hn_w0.5", "hp_hn_w0.75", "hp_hn")
NO_CHANCE = float("nan")


class Column(NamedTuple):
    """Column of a table; chance: a fraction, or NO_CHANCE."""

    title: str
    benchmark: str
    metric: str
    chance: float


BAG_OF_WORDS = (
    Column("R@1 image→text", "scenes_retrieval", "image_to_text_r1", 0.001),
    Column("R@1 text→image", "scenes_retrieval", "text_to_image_r1", 0.001),
    Column("object", "scenes_objects", "accuracy", 0.5),
    Column("colour", "scenes_attributes", "accuracy", 0.5),
    Column("attribute swap", "scenes_attribute_swap", "accuracy", 0.5),
    Column("relation swap", "scenes_relation_swap", "accuracy", 0.5),
    Column("What'sUp pair", "scenes_whatsup", "pair_accuracy", 0.25),
    Column("held-out R@1", "scenes_held_retrieval", "image_to_text_r1", 0.001),
    Column("held-out attribute swap", "scenes_held_attribute_swap", "accuracy", 0.5),
    Column("held-out relation swap", "scenes_held_relation_swap", "accuracy", 0.5),
)


HEADS = (
    Column("attribute swap", "scenes_attribute_swap", "accuracy", 0.5),
    Column("relation swap", "scenes_relation_swap", "accuracy", 0.5),
    Column("negation", "scenes_negation", "accuracy", 0.5),
    Column("What'sUp individual", "scenes_whatsup", "individual_accuracy", 0.5),
    Column("What'sUp pair", "scenes_whatsup", "pair_accuracy", 0.25),
    Column("held-out attribute swap", "scenes_held_attribute_swap", "accuracy", 0.5),
    Column("held-out relation swap", "scenes_held_relation_swap", "accuracy", 0.5),
    Column("R@1 image→text", "scenes_retrieval", "image_to_text_r1", 0.001),
)


# of part h; no decoder read the held-out attribute swap, whose questions changed since
DECODERS = (
    *[column for column in HEADS[:-1] if column.benchmark != "scenes_held_attribute_swap"],
    Column("object", "scenes_objects", "accuracy", 0.5),
)
SPATIAL = (
    Column("left/right/above/below", "scenes_spatial", "accuracy", 0.5),
    Column("pair of them", "scenes_spatial", "pair_accuracy", 0.25),
)
ANSWERS = (*[column for column in DECODERS if "individual" not in column.title], *SPATIAL)
PROBES = (  # of part g
    Column("colours: probe", "scenes_binding", "probe_accuracy", 0.5),
    Column("colours: score", "scenes_binding", "score_accuracy", 0.5),
    Column("left/right: probe", "scenes_binding_relation", "probe_accuracy", 0.5),
    Column("left/right: score", "scenes_binding_relation", "score_accuracy", 0.5),
)
SUPERPOSITION = (
    Column("nearer to its own sum", "scenes_superposition", "superposition", 0.5),
    Column("exchanged colours above noise", "scenes_superposition", "binding_visible", 0.05),
)
# (title, benchmark, metric) of measures that are no shares, rows of a table by model; where chance
# is measured, it is that of the same model.
CONE = tuple(
    (title, "scenes_superposition", metric)
    for title, metric in (
        ("length of the mean (cone); random directions", "cone"),
        ("cosine with the sum; with a third object", "sum_cosine"),
        ("the same, centred", "sum_cosine_centred"),
        ("residual of the sum; with a third object", "sum_residual"),
        ("the same, centred", "sum_residual_centred"),
        ("residual of another picture", "rendering_residual"),
        ("the same, centred", "rendering_residual_centred"),
        ("cosine with colours exchanged; with another picture", "exchanged_cosine"),
        ("the same, centred", "exchanged_cosine_centred"),
    )
)
COEFFICIENTS = tuple(
    (title, "scenes_superposition", metric)
    for title, metric in (
        ("coefficient of the first object's image", "first_coefficient"),
        ("of the second's", "second_coefficient"),
        ("of the first object's text p", "text_first_coefficient"),
        ("of the second's, q", "text_second_coefficient"),
        ("the same, centred: p", "text_first_coefficient_centred"),
        ("q", "text_second_coefficient_centred"),
        ("residual of the texts; with a third object's", "text_residual"),
        ("the same, centred", "text_residual_centred"),
    )
)
PAIR_GEOMETRY = tuple(
    (title, "scenes_pair_geometry", metric)
    for title, metric in (
        ("cosine of the two pictures; of two cases", "image_cosine"),
        ("share above .95 (erroneous agreement); of two cases", "agreement"),
        ("rank correlation of cosine and margin", "margin_correlation"),
    )
)
TOKENS = (
    ("pooled image, pooled text", "pooled_accuracy"),
    ("pooled image, mean over words", "text_mean_accuracy"),
    ("pooled image, last word", "text_before_end_1_accuracy"),
    ("mean over patches, pooled text", "image_mean_accuracy"),
    ("best patch, pooled text", "image_best_accuracy"),
    ("one patch, pooled text", "image_each_accuracy"),
    ("best patch of each word", "map_accuracy"),
)
ORDER = Column("caption above its shuffled words", "scenes_order", "accuracy", 0.5)
# 1.1a to 4.2 of input_pipeline/benchmarks/scene_geometry.py -> what it asks
CONDITIONS = {
    "1.1a": "an image is nearer to its object's name than to another",
    "1.1a_all": "than to every other",
    "1.1b": "an image of two is nearer to the name of either than to another",
    "1.1b_all": "to both than to every other",
    "1.2a": "one object in two colours is nearer than two objects",
    "1.2b": "one object at two places is nearer than two objects",
    "2.1": "one object in two colours differs",
    "2.2": "a coloured object's text is nearer to its image than to one of another colour",
    "2.3": "two objects with colours exchanged differ",
    "3.1": "one object at two places differs",
    "3.2": "two objects with places exchanged differ",
    "3.3": "another object in the same relation is nearer than in the opposite one",
    "4.1": '"no X" is nearer to the text of another object than to X',
    "4.1_all": "than to X, for every other object",
    "4.2": 'an image of X is nearer to the text of an absent object than to "no X"',
    "4.2_all": "to those of all absent objects",
}
GEOMETRY = (*PROBES, *SUPERPOSITION, ORDER)
GEOMETRY_RUNS = ("clip_geometry", "relations_geometry", "dcsm_geometry")
SHUFFLED = tuple(
    Column(title, f"scenes_retrieval{shuffle}", "image_to_text_r1", 0.001)
    for title, shuffle in (
        ("nouns and adjectives", "_shuffle_nouns_and_adjectives"),
        ("all other words", "_shuffle_all_but_nouns_and_adjectives"),
        ("within trigrams", "_shuffle_within_trigrams"),
        ("trigrams", "_shuffle_trigrams"),
        ("all words", "_shuffle_words"),
        ("rows", "_rows_4"),
        ("columns", "_cols_4"),
        ("patches", "_patches_9"),
    )
)

OTHERS = (  # rows of part f
    "clip", "siglip", "clip_ft", "crepe_swap", "crepe_replace", "crepe_negate", "svlc", "svlc_pos",
    "dac", "fsc_clip", "leftright_none", "leftright", "leftright_siglip_none", "leftright_siglip",
)  # fmt: skip
OTHER_COLUMNS = (*BAG_OF_WORDS[:7], HEADS[2])  # retrieval, attributes, swaps, pairs, negation

# of part f: method -> (the same training without it, the run that both start from)
_FROM_CLIP = (
    "tripletclip", "conclip", "csclip", "clic", "ce_clip", "read_clip", "degla",
    "fsc_clip_local",
)  # fmt: skip
NEW_METHODS = {
    **dict.fromkeys(_FROM_CLIP, ("clip_ft", "clip")),
    **dict.fromkeys(("c2lip", "siglip2_dense"), ("siglip_ft", "siglip")),
    "flair": ("clip_mean", "clip_mean"),  # frozen towers, whose cosine the head replaces
    "xvlm": ("xvlm_itc", "clip_mean"),
    "negation": ("clip", "clip"),
    "crops": ("clip", "clip"),
    "crops_half": ("clip", "clip"),
    "patches": ("clip_mean", "clip_mean"),
}
NEGATIONS = {  # of part f: run -> option `negation` of its benchmarks
    "negation_none": {},
    "negation_1.9": {"strength": 1.9},
    "negation_1.9_a": {"strength": 1.9, "phrase": "a {}"},
    "negation_8": {"strength": 8.0},
    "negation_8_a": {"strength": 8.0, "phrase": "a {}"},
}
NEGATION_COLUMNS = (
    Column("negation", "scenes_negation", "accuracy", 0.5),
    Column("colour, object denied", "scenes_negation_colour", "accuracy", 0.5),
    Column("R@1 image→text, object denied", "scenes_negated_retrieval", "image_to_text_r1", 0.001),
    Column("R@1 text→image, object denied", "scenes_negated_retrieval", "text_to_image_r1", 0.001),
    *BAG_OF_WORDS[:4],
)
DETAILS = {"clip_details": "clip", "clip_ft_details": "clip_ft", "csclip_details": "csclip"}
DETAIL_COLUMNS = (  # of part f: whether a wrong detail costs a caption anything
    Column("half-truths", "scenes_half_truths", "original_accuracy", 0.5),
    Column("of objects", "scenes_half_truths", "original_accuracy/entity", 0.5),
    Column("of relations", "scenes_half_truths", "original_accuracy/relation", 0.5),
    Column("confusion", "scenes_confusion", "accuracy", 1 / 3),
)
METHODS = {
    **dict.fromkeys(("hn", "hp_hn"), ("clip_ft", "clip")),
    "negclip": ("clip_ft_400", "clip"),
    **dict.fromkeys(
        ("crepe_swap", "crepe_replace", "crepe_negate", "svlc", "svlc_pos", "dac"),
        ("clip_ft", "clip"),
    ),
    **NEW_METHODS,
    **dict.fromkeys(("labclip", "pooled", "tflocal"), ("clip_mean", "clip_mean")),  # as flair
}

BLIND = (  # rows of part k
    "clip", "clip_ft", "clip_ft_permuted", "hn", "hn_permuted",
    "hn_balanced_60", "hn_balanced_60_permuted", "hn_balanced_52", "hn_balanced_52_permuted",
    "hp_hn", "hp_hn_permuted",
    "hp_hn_balanced_60", "hp_hn_balanced_60_permuted",
    "hp_hn_balanced_52", "hp_hn_balanced_52_permuted",
    "clip_ft_400", "clip_ft_400_permuted", "negclip", "negclip_permuted",
)  # fmt: skip
BLIND_GAINS = tuple(  # of part k: (run, the same training without its negatives)
    (f"{run}{end}", f"{control}{end}")
    for run, control in (("hn", "clip_ft"), ("hp_hn", "clip_ft"), ("negclip", "clip_ft_400"))
    for end in ("", "_permuted")
) + tuple(
    (f"{run}_balanced_{share}{end}", f"clip_ft{end}")
    for run in ("hn", "hp_hn")
    for share in (60, 52)
    for end in ("", "_permuted")
)
TEXTS = (  # of the negatives that part k balances
    Column("captions with a negative", "texts", "has_negative", NO_CHANCE),
    Column("blind, as drawn", "texts", "separability_drawn", 0.5),
    Column("kept", "texts", "kept", NO_CHANCE),
    Column("blind, kept", "texts", "separability", 0.5),
)


def triplet_columns(benchmark: str, group: str = "", suffix: str = "") -> tuple[Column, ...]:
    """Original, augmented and brittleness columns of a triplet benchmark, or of one of its groups.

    suffix: appended to the titles.
    """
    path = f"/{group}" if group else ""
    titles = ("Orig", "Aug", "Brit")
    return tuple(
        Column(f"{title} {suffix}".strip(), benchmark, f"{metric}{path}", chance)
        # Chance that the negative is the lower of two texts; the lowest, or the middle, of three.
        for title, metric, chance in zip(titles, TRIPLET, (1 / 2, 1 / 3, 1 / 3), strict=True)
    )


BLIND_COLUMNS = (
    *triplet_columns("scenes_replace", "", "REPLACE"),
    *triplet_columns("scenes_swap", "", "SWAP"),
    BAG_OF_WORDS[4],  # attribute swap
    BAG_OF_WORDS[0],  # R@1
)


def label(run: str) -> str:
    """Name of a run in tables."""
    name = run.removesuffix("_synonyms").removesuffix("_hues").removesuffix("_relations")
    return LABELS.get(name, name)


def seeds_of(run: str, seeds: int) -> int:
    """Number of seeds of a run, of `seeds` in all."""
    return min(seeds, SEEDS.get(run, seeds))
