"""Names and columns of the tables of a study."""

from typing import NamedTuple

LABELS = {  # run -> its name in tables
    "clip": "CLIP",
    "clip_ft": "CLIP-FT",
    "clip_ft_400": "CLIP-FT, 400 steps",
    "clip_ft_1200": "CLIP-FT, 1,200 steps",
    "negclip": "NegCLIP, 400 steps",
    "hard_images": "relation pairs alone, 800 steps",
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
    "leftright_none": "CLIP, captions with places",
    "leftright": "the same with left/right negatives",
    "leftright_siglip_none": "SigLIP, captions with places",
    "leftright_siglip": "the same with left/right negatives",
    "clip_geometry": "CLIP",
    "relations_geometry": "relation pairs, then NegCLIP + hard images",
    "text_vectors": "cosine with vectors of texts",
    "clip_frozen": "cosine of the towers",
    "captioner": "decoder on patch tokens, captions of relations",
    "captioner_pooled": "decoder on the embedding alone, captions of relations",
    "captioner_any": "decoder on patch tokens, any captions",
    "vlm2vec": "decoder that knows relations as an embedder, with the question",
    "vlm2vec_plain": "the same, without the question",
}
PROTOCOLS = {  # part i: suffix of an evaluation's name -> row of its table
    "score": "log probability of the caption",
    "vqascore": "VQAScore",
    "keywords": "keywords in what it writes, greedy",
    "m3id_t0": "keywords, M3ID with t from 0",
    "m3id_t1": "keywords, M3ID with t from 1",
}
TRIPLET = ("original_accuracy", "augmented_accuracy", "brittleness")
HEAD_RUNS = (
    "dcsm", "dcsm_grid", "dcsm_no_rows", "dcsm_varied", "sparc", "text_vectors",
    "pacl", "pacl_feature_1d", "pacl_feature_2d", "pacl_unlocked", "pacl_qk_1d", "pacl_qk_2d",
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


DECODERS = (*HEADS[:-1], Column("object", "scenes_objects", "accuracy", 0.5))  # of part h
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
    Column("residual of the sum", "scenes_superposition", "sum_residual", NO_CHANCE),
    Column("residual of another picture", "scenes_superposition", "rendering_residual", NO_CHANCE),
    Column("exchanged colours above noise", "scenes_superposition", "binding_visible", 0.05),
    Column("conditions met", "scenes_conditions", "satisfied", 0.283),
)
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


def label(run: str) -> str:
    """Name of a run in tables."""
    name = run.removesuffix("_synonyms").removesuffix("_hues").removesuffix("_relations")
    return LABELS.get(name, name)
