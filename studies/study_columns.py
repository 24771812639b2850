"""Columns of the tables of a study, and names of their rows."""

from collections.abc import Iterator
from typing import NamedTuple

from vlc_jax.configs.common.methods import METHODS

TRIPLET = {  # title -> metric, and chance that the negative is the lower of two texts; the lowest,
    "Orig": ("original_accuracy", 1 / 2),  # or the middle, of three
    "Aug": ("augmented_accuracy", 1 / 3),
    "Brit": ("brittleness", 1 / 3),
}
TRIPLETS = {  # end of a title -> benchmark; A: synonyms of training positives, B: others
    "A": "scenes_replace",
    "B": "scenes_replace_unseen",
    "REPLACE": "scenes_replace",
    "SWAP": "scenes_swap",
    "relation SWAP": "scenes_swap_relation",
}


class Column(NamedTuple):
    """Column of a table; chance: a fraction."""

    title: str
    benchmark: str
    metric: str = "accuracy"
    chance: float = 0.5


def _triplets() -> Iterator[Column]:
    """Original, augmented and brittleness columns of the triplets: "Orig SWAP", "Aug size A"."""
    for end, benchmark in TRIPLETS.items():
        for group in ("", "size", "colour", "relation") if end in ("A", "B") else ("",):
            for title, (metric, chance) in TRIPLET.items():
                name, path = " ".join(filter(None, (title, group, end))), f"{metric}/{group}"
                yield Column(name, benchmark, path.rstrip("/"), chance)


# fmt: off
COLUMNS = {column.title: column for column in (
    Column("R@1 image→text", "scenes_retrieval", "image_to_text_r1", 0.001),
    Column("seconds", "run", "seconds", 0.0),
    Column("object", "scenes_objects"),
    Column("colour", "scenes_attributes"),
    Column("attribute swap", "scenes_attribute_swap"),
    Column("relation swap", "scenes_relation_swap"),
    Column("negation", "scenes_negation"),
    Column("What'sUp pair", "scenes_whatsup", "pair_accuracy", 0.25),
    Column("relaxed pair", "scenes_whatsup", "relaxed_pair"),
    Column("word order", "scenes_order"),
    Column("zero-shot objects", "scenes_zero_shot_objects", "accuracy", 0.1),
    Column("zero-shot colours", "scenes_zero_shot_colours", "accuracy", 0.1),
    Column("held-out attribute swap", "scenes_held_attribute_swap"),
    Column("held-out relation swap", "scenes_held_relation_swap"),
    Column("left/right/above/below", "scenes_spatial"),
    *_triplets(),
    Column("colours: probe", "scenes_binding", "probe_accuracy"),
    Column("colours: score", "scenes_binding", "score_accuracy"),
    Column("left/right: probe", "scenes_binding_relation", "probe_accuracy"),
    Column("left/right: score", "scenes_binding_relation", "score_accuracy"),
    Column("nearer to its own sum", "scenes_superposition", "superposition"),
    Column("exchanged colours above noise", "scenes_superposition", "binding_visible", 0.05),
    Column("pairs above .95", "scenes_pair_geometry", "agreement", 0.0),
    Column("What'sUp pair above .95", "scenes_pair_geometry", "agreeing_accuracy", 0.25),
    Column("all other words", "scenes_retrieval_shuffle_all_but_nouns_and_adjectives",
           "image_to_text_r1", 0.001),
    Column("all words", "scenes_retrieval_shuffle_words", "image_to_text_r1", 0.001),
    Column("patches", "scenes_retrieval_patches_9", "image_to_text_r1", 0.001),
    # on photographs
    *(Column(f"{name} of {kind}", "photographs_balance", f"{name}/kind={kind}", 0.5)
      for name in ("kept", "blind") for kind in ("crepe_replace", "crepe_swap")),
    Column("R@1 of photographs", "photographs_retrieval", "image_to_text_r1", 0.001),
    Column("R@5 of photographs", "photographs_retrieval", "image_to_text_r5", 0.005),
    Column("R@5, words shuffled", "photographs_shuffled", "image_to_text_r5", 0.005),
    Column("order of words", "photographs_order"),
    Column("Aug of swaps", "photographs_swap_positives", "augmented_accuracy", 1 / 3),
    Column("swapped words", "photographs_swap"),
    Column("Orig", "photographs_replace", "original_accuracy"),
    Column("Aug", "photographs_replace", "augmented_accuracy", 1 / 3),
    Column("Brit", "photographs_replace", "brittleness", 1 / 3),
    Column("Aug, unseen synonyms", "photographs_unseen", "augmented_accuracy", 1 / 3),
    Column("Orig, blind", "photographs_replace", "original_accuracy_blind"),
    Column("swapped words, blind", "photographs_swap", "accuracy_blind"),
    Column("order of words, blind", "photographs_order", "accuracy_blind"),
    Column("What'sUp A", "whatsup_a", "accuracy", 0.25),
    Column("SugarCrepe", "sugarcrepe", "accuracy"),
    Column("VALSE", "valse", "accuracy_macro"),
    Column("reporting bias", "reporting_bias", "accuracy_macro", 0.278),
)}
# fmt: on
PROTOCOLS = {  # end of a benchmark's name -> row of its table
    "score": "log probability of the caption",
    "vqascore": "VQAScore",
    "keywords": "keywords in what it writes, greedy",
}
OF_HEADS = ("attribute swap", "relation swap", "negation", "What'sUp pair",
            "held-out attribute swap", "held-out relation swap")  # fmt: skip
# No decoder read the held-out attribute swap, whose questions changed since, or retrieval, whose
# million image-text pairs it would have to read.
OF_DECODERS = (*(title for title in OF_HEADS if title != "held-out attribute swap"), "object")
PHOTOGRAPHS = {  # run -> arguments of studies/photographs.py
    "photo_clip_ft": "method=clip_ft",
    "photo_hn": "method=hn",
    "photo_hp_hn": "method=hp_hn",
    "photo_clip_ft_permuted": "method=clip_ft,captions=permuted",
    "photo_hn_permuted": "method=hn,captions=permuted",
    "photo_hp_hn_permuted": "method=hp_hn,captions=permuted",
    "photo_hn_balanced_52": "method=hn,texts=balanced",
    "photo_hn_balanced_52_permuted": "method=hn,texts=balanced,captions=permuted",
    "photo_hn_random": "method=hn,texts=random",
    "photo_hp_hn_balanced_52": "method=hp_hn,texts=balanced",
    "photo_crepe_swap": "method=crepe_swap",
    "photo_crops": "segments=crops",
}
RATES = {  # at another learning rate, to choose one on dev or to see on test what the choice does
    **{f"photo_clip_dev_{rate}": "method=clip,split=dev" for rate in (0.0005, 0.001, 0.002)},
    **{f"photo_clip_ft_dev_{rate}": "method=clip_ft,split=dev" for rate in (0.0001, 0.0005, 0.001)},
    **{f"photo_{method}_0.0001": f"method={method},split=test" for method in ("clip_ft", "hn")},
}
# shares of words with synonyms that a training caption replaces by one
SHARES = (0.002, 0.01, 0.03, 0.06, 0.15)
SHARE = "share"  # begins the names of their runs
SWEEP = ("hp_hn_w0", "hp_hn_w0.25", "hp_hn_w0.5", "hp_hn_w0.75", "hp_hn")
NEWER = (
    "tripletclip", "conclip", "csclip", "clic", "ce_clip", "read_clip", "degla", "fsc_clip_local",
    "c2lip", "siglip2_dense", "flair", "xvlm", "negation", "crops", "crops_half", "patches",
)  # fmt: skip
OF_TABLE = (  # rows of the table of methods; their controls and bases are those of METHODS
    "hn", "hp_hn", "negclip", "crepe_swap", "crepe_replace", "crepe_negate", "svlc", "svlc_pos",
    "dac", *NEWER, "labclip", "pooled", "tflocal",
)  # fmt: skip
CONTROLS = {  # run -> the same training without the method, the run that both start from
    run: (method.control, method.base) for method in METHODS.values() for run in method.scenes
} | dict.fromkeys(PHOTOGRAPHS, ("photo_clip_ft", "photo_clip"))

# Runs with fewer seeds than the others: run -> seeds. MiniLM's vectors are those of the same texts
# for every seed; a blind classifier judges 20,000 pairs of drawn texts.
DRAWN = (
    "negclip", "read_clip", "tripletclip", "crepe_swap", "crepe_replace", "crepe_negate", "conclip",
)  # fmt: skip
ONCE = ("minilm_vectors", "minilm_places_vectors", "photographs",
        *(name for name in RATES if "_dev_" in name))  # fmt: skip
SEEDS = dict.fromkeys((*ONCE, *(f"texts_{name}" for name in DRAWN)), 1)
LONGER = ("clip_frozen", "captioner", "vlm2vec", "vlm2vec_plain")  # with two seeds more
LABELS = {  # run -> its name in tables, where it is not the title of its method
    **{next(iter(method.scenes), ""): method.title for method in METHODS.values()},
    "clip_ft_400": "CLIP-FT, 400 steps",
    "clip_ft_1200": "CLIP-FT, 1,200 steps",
    "negclip": "NegCLIP, 400 steps",
    "hard_images": "relation pairs alone",
    "relations": "relation pairs, then NegCLIP",
    **{f"hp_hn_w{weight}": f"HP+HN, weight {weight[1:]}" for weight in ("0.25", "0.5", "0.75")},
    "hp_hn_w0": "HP+HN, weight 0 (HP only)",
    "hp_hn_swap_only": "HP+HN, swap only",
    "hp_hn_replace_only": "HP+HN, replace only",
    **dict.fromkeys(("clip_mean", "relations_mean", "clip_frozen"), "cosine of the towers"),
    "dcsm_no_rows": "DCSM without vectors of functional words",
    "dcsm_varied": "DCSM, varied captions",
    "pacl_feature_1d": "PACL + RoPE",
    "crepe_replace": "CREPE-replace",
    "crepe_negate": "CREPE-negate",
    "fsc_clip": "FSC-CLIP's loss",
    "fsc_clip_local": "FSC-CLIP",
    "read_clip": "READ-CLIP without its T5",
    "c2lip": "C2LIP, from SigLIP",
    "siglip2_dense": "SigLIP 2's dense losses, from SigLIP",
    "negation": "CLIP, negation taken out of texts",
    "crops": "CLIP, segments against crops",
    "crops_half": "the same, averaged with the cosine of the whole",
    "patches": "CLIP with mean pooling, segments against patches",
    "leftright_none": "CLIP, captions with places",
    "leftright": "the same with left/right negatives",
    "text_vectors": "cosine with vectors of texts",
    "unlocked": "both towers trained",
    "unlocked_minilm": "image tower and MiniLM",
    "captioner": "decoder on patch tokens, captions of relations, 2,400 steps",
    "captioner_800": "the same, 800 steps",
    "captioner_pooled": "decoder on the embedding alone, captions of relations, 800 steps",
    "captioner_any": "decoder on patch tokens, any captions, 800 steps",
    "vlm2vec": "embedder, with the question",
    "vlm2vec_plain": "the same, without the question",
    "minilm": "cosine with vectors of MiniLM",
    "minilm_pacl": "PACL with vectors of MiniLM",
    "minilm_pacl_1d": "PACL + RoPE with vectors of MiniLM",
}
ENDS = {  # end of a run's name -> what is added to the label of the rest
    **dict.fromkeys(("_synonyms", "_relations", "_geometry"), ""),
    **{f"_balanced_{share}_permuted": f", balanced to {share} %, images permuted"
       for share in (60, 52)},
    **{f"_balanced_{share}": f", negatives balanced to {share} %" for share in (60, 52)},
    "_permuted": ", images permuted",
    "_random": ", fewer negatives at random",
    "_exchanged": ", left/right negatives",
    "_plain": ", plain captions",
}  # fmt: skip


def column(name: str) -> Column:
    """A column by its title, of a protocol in "TITLE/PROTOCOL"."""
    title, _, protocol = name.rpartition("/") if name not in COLUMNS else (name, "", "")
    found = COLUMNS[title]
    return found._replace(benchmark=f"{found.benchmark}_{protocol}") if protocol else found


def label(run: str) -> str:
    """Name of a run in tables; on photographs as on the scenes."""
    run = run.removeprefix("photo_")
    for end, words in ENDS.items():
        if run not in LABELS and run.endswith(end) and not run.startswith("texts_"):
            return label(run.removesuffix(end)) + words
    return LABELS.get(run, run)


def seeds_of(run: str, seeds: int) -> int:
    """Seeds of a run where most have `seeds`: some have fewer, of SHARES and LONGER two more."""
    seeds += 2 * (seeds > 1 and (run.startswith(SHARE) or run.removesuffix("_pairs") in LONGER))
    return min(seeds, SEEDS.get(run, seeds))
