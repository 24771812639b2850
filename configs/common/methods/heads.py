"""Methods that are heads on frozen towers, and scores without training."""

from vlc_jax.configs.common.methods.record import L14, OF_1280, ON_FROZEN, Method, Row

OWN_CAPTION, UNLOCKED = "pooling=own_caption", "image_tower=unlocked"
SEGMENTS = {
    "loss": "none",
    "compared": "numpy: encode/test_segments.py",
    "section": "Segments without training",
}


def _head(model: str, run: str, head: str, arguments: str, label: str = "") -> Row:
    """PACL or SPARC on CLIP; on the scenes without hard images."""
    config, scenes = f"{head}:data=llava,{arguments}", f"{head}:hard_images=0,{arguments}"
    papers = () if model else ("acl2025",)
    return Row(model, run, config, "clip", scenes, label=label, papers=papers)


# fmt: off
METHODS = {
    "labclip": Method(
        "LABCLIP", "labclip", "NegCLIP; on the scenes CLIP with hard images", "Koishigarina 2025",
        "one of five captions is drawn at each reading", "numpy: models/test_labclip.py",
        (Row("LABCLIP ViT-B/32", "labclip", "labclip:data=coco"),),
        {"labclip": "labclip:steps=500"}, **ON_FROZEN, short="linear map",
    ),
    "pacl": Method(
        "PACL", "pacl", "CLIP", "Mukhoti 2023",
        "the published code has `pooling=uniform`", "torch: parity/test_methods.py",
        (
            _head(f"{L14} + PACL", "pacl", "pacl", OWN_CAPTION),
            _head(f"{L14} + PACL + RoPE", "pacl_feature_1d", "pacl",
                  f"{OWN_CAPTION},rope=feature_1d"),
            Row(f"{L14} + PACL + RoPE + stronger text encoder", "pacl_vectors",
                f"pacl:data=llava,{OWN_CAPTION},rope=feature_1d,noun_phrases=0", "vectors",
                flags=(OF_1280,)),
            _head("", "pacl_uniform", "pacl", "pooling=uniform,eval_pooling=uniform",
                  "PACL, patches weighed alike"),
            _head("", "pacl_pairwise", "pacl", "pooling=pairwise", "PACL, pooled for every text"),
            *(_head("", f"pacl_{name}", "pacl", f"{OWN_CAPTION},{arguments}", label)
              for name, arguments, label in (
                  ("feature_2d", "rope=feature_2d", "PACL + RoPE by row and column"),
                  ("unlocked", UNLOCKED, "PACL, image tower trained"),
                  ("qk_1d", f"{UNLOCKED},rope=qk_1d", "PACL + RoPE inside the tower, 1-D"),
                  ("qk_2d", f"{UNLOCKED},rope=qk_2d", "PACL + RoPE inside the tower, 2-D"),
                  ("negatives", "negatives=leftright", "PACL + left/right negatives"))),
        ),
        {"pacl": "pacl:steps=500", "pacl_feature_1d": "pacl:rope=feature_1d,steps=500"},
        **ON_FROZEN, short="patch-weighted pooling",
    ),
    "sparc": Method(
        "SPARC", "sparc", "1/2 CLIP + local", "Bica 2024",
        "threshold 1/P in training and evaluation; on the scenes without padding",
        "torch: parity/test_methods.py",
        (_head(f"{L14} + SPARC + RoPE", "sparc_feature_1d", "sparc",
               "text_tokens=all,rope=feature_1d"),
         _head("", "sparc", "sparc", "text_tokens=real", "SPARC")),
        {"sparc": "sparc:steps=500"}, **ON_FROZEN, short="token-patch groups",
    ),
    "dcsm": Method(
        "DCSM", "dcsm", "CLIP in sub-batches of 16",
        "Kang 2025",
        "scores of a pair do not depend on the batch; other composites",
        "torch: parity/test_dcsm.py",
        (
            *(Row("", f"dcsm_{name}", f"eval/all:variant={variant},wording=dcsm_baseline", name,
                  papers=("dcsm",), label=f"CLIP ViT-{variant}")
              for name, variant in (("b16", "B/16"), ("b32", "B/32"))),
            Row("DCSM", "dcsm", "dcsm:data=coco", "b16", "dcsm:", papers=("dcsm",)),
            Row("", "dcsm_texts", "dcsm:data=coco,opposite=text", "b16_texts",
                "dcsm:opposite=text", papers=("dcsm",), label="DCSM, opposite captions"),
        ),
        {"dcsm": "dcsm:layout=flat", "dcsm_grid": "dcsm:layout=grid",
         "dcsm_no_rows": "dcsm:functional=none",
         "dcsm_varied": "dcsm:phrases=varied,layout=flat"},
        **ON_FROZEN, short="CNN on similarity maps",
    ),
    "pooled": Method(
        "MaxSim", "pooled", "CLIP", "Khattab 2020", "two matrices on frozen towers",
        "numpy: models/test_pooled.py", scenes={"pooled": "pooled:steps=500"}, **ON_FROZEN,
        section="Text-conditioned pooling",
    ),
    "flair": Method(
        "FLAIR", "flair", "two sigmoid losses", "Xiao 2025",
        "other images have one caption in the first loss",
        "torch: parity/test_methods.py", (Row("FLAIR", "flair", "flair:data=coco"),),
        {"flair": "flair"}, **ON_FROZEN,
    ),
    "tflocal": Method(
        "TFLocal", "tflocal", "CLIP in sub-batches of 16 (COCO: 64)", "Miranda 2026",
        "after the abstract: input, sizes and rate are ours",
        "numpy: models/test_tflocal.py", scenes={"tflocal": "tflocal:steps=3000"}, **ON_FROZEN,
    ),
    "crops": Method(
        "segments and crops", "eval/all:segments=crops", paper="Miranda 2025",
        differs="segments by rules, sizes of crops are ours",
        scenes={"crops": "eval/all:sets=scenes,segments=crops"}, control="clip", **SEGMENTS,
    ),
    "crops_half": Method(
        "segments, crops and the whole", "eval/all:segments=crops,segment_weight=0.5",
        paper="Miranda 2025", differs="as segments and crops",
        scenes={"crops_half": "eval/all:sets=scenes,segments=crops,segment_weight=0.5"},
        control="clip", **SEGMENTS,
    ),
    "patches": Method(
        "segments and patches", "eval/all:segments=patches", paper="Zhang 2025",
        differs="after the abstract: phrases encoded alone, weight and mean are ours",
        scenes={"patches": "eval/all:sets=scenes,segments=patches"}, **ON_FROZEN, **SEGMENTS,
    ),
    "negation": Method(
        "negation", "eval/all:negation=1.9", "none", "ICLR 2026",
        "rules and two of the four neutral words are ours",
        "numpy: evaluators/test_negation.py",
        scenes={"negation": "eval/all:sets=scenes,negation=1.9"}, control="clip",
        section="Negation without training",
    ),
}
