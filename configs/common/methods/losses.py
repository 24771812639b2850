"""Methods that are losses, with hard negatives and hard positives or without."""

from vlc_jax.configs.common.methods.record import FINETUNED, L14, SIGLIP, Method, Row, joined

EVA = "EVA-CLIP"
SIZES = (  # row of table 8 of Kamath et al. -> arguments, label, flags
    ("b16", "variant=B/16", "CLIP ViT-B/16", ()),
    ("rn50", "variant=RN50", "CLIP RN50", ()),
    ("roberta", "family=clip_hf,variant=roberta-B/32", "CLIP ViT-B/32, RoBERTa", ()),
    ("datacomp", "variant=B/32", "CLIP ViT-B/32, DataComp", ("--config.model.activation=gelu",)),
)
WEIGHTS = {"0": "0", ".25": "0.25", ".5": "0.5", ".75": "0.75"}  # of HP+HN, printed -> argument
FROM_CLIP = {"control": "clip_ft"}
FROM_SIGLIP = {"base": "siglip", "control": "siglip_ft"}


def _finetuned(
    model: str, run: str, given: str, arguments: str = "", scenes: str = "", end: str = ""
) -> tuple[Row, ...]:
    """A model finetuned on LLaVA's data, without and with left / right negatives."""
    return tuple(
        Row(
            f"{model} + {words}{end}",
            f"{run}_ft{'_negatives' * bool(negatives)}",
            joined("llava/clip_ft", arguments, negatives),
            given,
            joined("leftright", scenes, negatives or "negatives=none") if scenes else "",
        )
        for words, negatives in FINETUNED.items()
    )


def _hp_hn(model: str, run: str, arguments: str = "", *without: str) -> Row:
    config, scenes = (joined("hp_hn", data, arguments) for data in ("data=coco", "pooling=mean"))
    return Row(model, run, config, "hp", scenes, without=without)


# fmt: off
METHODS = {
    "clip": Method(
        "CLIP", "pretrain/clip_b32", "CLIP", "Radford 2021",
        "LAION-400M, the pairs of open_clip",
        "open_clip, transformers: parity/test_towers.py",
        (
            Row(L14, "l14_336", "eval/all:variant=L/14-336,size=336", "clip",
                papers=("hard_positives",)),
            Row("CLIP ViT-L/14", "l14", "eval/all:variant=L/14", "l14", papers=("hard_positives",)),
            Row("CLIP ViT-B/32", "b32", "eval/all:variant=B/32", "b32"),
            *(Row("", run, f"eval/all:{arguments}", run, papers=("hard_positives",), flags=flags,
                  label=label) for run, arguments, label, flags in SIZES),
            Row(EVA, "eva", "eval/all:variant=EVA01-g/14,size=224", "eva"),
            *(Row(f"CLIP ViT-{size} LAION-400M", f"pretrain_{name}", f"pretrain/clip_{name}:")
              for name, size in (("b32", "B/32"), ("b16", "B/16"), ("l14", "L/14"))),
        ),
        {"clip": "scenes/clip"}, base="", section="Pretraining", short="softmax",
    ),
    "siglip": Method(
        "SigLIP", "pretrain/siglip_b16", "SigLIP", "Zhai 2023",
        "WebLI is not public; AdamW", "open_clip, transformers: parity/test_towers.py",
        (Row(SIGLIP, "siglip", "eval/all:family=siglip,variant=SigLIP-L/16-256,size=384",
             "siglip"),
         Row("SigLIP ViT-B/16, 9 billion examples", "pretrain_siglip_b16", "pretrain/siglip_b16:"),
         Row(f"{SIGLIP}, 40 billion examples", "pretrain_siglip_l16_384",
             "pretrain/siglip_l16_384:")),
        {"siglip": "scenes/siglip"}, base="", section="Pretraining", short="sigmoid",
    ),
    "clip_ft": Method(
        "CLIP-FT", "clip_ft", "CLIP", "Yuksekgonul 2023", "open_clip's decay",
        "open_clip, schedule in torch: parity/test_training.py",
        (Row("CLIP-FT", "clip_ft", "clip_ft:data=coco", "negclip", "clip_ft:pooling=mean"),),
        {"clip_ft": "clip_ft", "clip_ft_400": "clip_ft:steps=400",
         "clip_ft_1200": "clip_ft:steps=1200"},
        section="Control: CLIP",
    ),
    "clip_coco": Method(
        "CLIP-COCO", "clip_coco", "CLIP", "Kamath 2024",
        "the paper gives no rate, batch, decay or warmup",
        "open_clip, schedule in torch: parity/test_training.py",
        (Row("CLIP-COCO", "clip_coco", "clip_coco:", "coco", "clip_ft:pooling=mean"),),
        section="Control: CLIP",
    ),
    "negclip": Method(
        "NegCLIP", "negclip", "NegCLIP", "Yuksekgonul 2023",
        "the authors' miner of hard images is not public: `vlc-jax nearest`",
        "torch: parity/test_methods.py",
        (Row("NegCLIP", "negclip", "negclip:data=coco", "negclip", "negclip:pooling=mean"),),
        {"negclip": "negclip:steps=400"},
        control="clip_ft_400", short="negatives in the softmax",
    ),
    "crepe": Method(
        "CREPE-swap", "crepe", "NegCLIP", "Hsieh 2023",
        "texts from word tables: neither generator nor code is public",
        "torch: parity/test_methods.py",
        tuple(Row(f"CREPE-{kind}", f"crepe_{kind}", f"crepe:data=coco,kind={kind}", "coco",
                  f"crepe:pooling=mean,kind={kind}") for kind in ("swap", "replace")),
        {f"crepe_{kind}": f"crepe:kind={kind}" for kind in ("swap", "replace", "negate")},
        **FROM_CLIP, section="CREPE-style", short="negatives in the softmax",
    ),
    "leftright": Method(
        "left / right", "leftright", "NegCLIP, or SigLIP with negatives", "Li 2024",
        "crops of .9 to 1 of the area", "torch: parity/test_methods.py",
        (
            *_finetuned(L14, "l14_336", "clip", scenes="pooling=mean"),
            *_finetuned(SIGLIP, "siglip", "siglip", "family=siglip", "family=siglip"),
            *_finetuned(EVA, "eva", "eva", "variant=EVA01-g/14,size=224"),
            *_finetuned(SIGLIP, "siglip_unlocked", "siglip", "family=siglip,image_tower=unlocked",
                        "family=siglip,image_tower=unlocked", ", image tower unlocked"),
            *(row._replace(model="", label=row.model, papers=("acl2025",)) for row in
              _finetuned("EVA02-CLIP E/14", "eva_e", "eva_e", "variant=EVA02-E/14,size=224")),
        ),
        {"leftright": "leftright", "leftright_none": "leftright:negatives=none"},
        control="leftright_none", section="Left and right",
    ),
    "svlc": Method(
        "SVLC", "svlc", "CLIP + N", "Doveh 2023",
        "without two KL terms that are off by default",
        "torch: parity/test_methods.py",
        (Row("SVLC", "svlc", "svlc:data=coco", "cc3m", "svlc:pooling=mean"),),
        {"svlc": "svlc"}, **FROM_CLIP, section="SVLC and SVLC+Pos", short="a loss of negatives",
    ),
    "svlc_pos": Method(
        "SVLC+Pos", "svlc_pos", "CLIP + N + A", "Doveh 2023",
        "as SVLC; paraphrases by any language model", "torch: parity/test_methods.py",
        (Row("SVLC+Pos", "svlc_pos", "svlc_pos:data=coco", "cc3m_positives",
             "svlc_pos:pooling=mean"),),
        {"svlc_pos": "svlc_pos"}, **FROM_CLIP, section="SVLC and SVLC+Pos",
    ),
    "dac": Method(
        "DAC", "dac", "CLIP + N + M + B", "Doveh 2023",
        "bags without repetition, of dense captions alone",
        "torch: parity/test_methods.py",
        (
            Row("DAC-LLM", "dac_llm", "dac:data=coco", "dac_llm", "dac:pooling=mean"),
            Row("DAC-SAM", "dac_sam", "dac:data=coco", "dac_sam"),
        ),
        {"dac": "dac"}, **FROM_CLIP, short="several captions",
    ),
    "hn": Method(
        "HN", "hn", "CLIP + N", "Kamath 2024",
        "CREPE-style negatives; rate, batch and decay of SVLC",
        "torch: parity/test_methods.py",
        (Row("HN", "hn", "hn:data=coco", "coco", "hn:pooling=mean"),),
        {"hn": "hn"}, **FROM_CLIP, section="HN and HP+HN", short="a loss of negatives",
    ),
    "hp_hn": Method(
        "HP+HN", "hp_hn", "CLIP + w N + A", "Kamath 2024",
        "as HN; positives from word tables unless given", "torch: parity/test_methods.py",
        (
            _hp_hn("HP+HN", "hp_hn"),
            _hp_hn("HP+HN, swap only", "hp_hn_swap_only", "kind=swap", "replace_hp"),
            _hp_hn("HP+HN, replace only", "hp_hn_replace_only", "kind=replace", "swap_hp"),
            *(_hp_hn(f"HP+HN, weight {printed}", f"hp_hn_w{weight}", f"hn_weight={weight}")
              for printed, weight in WEIGHTS.items()),
        ),
        {"hp_hn": "hp_hn",
         **{f"hp_hn_w{weight}": f"hp_hn:hn_weight={weight}" for weight in WEIGHTS.values()},
         **{f"hp_hn_{kind}_only": f"hp_hn:kind={kind}" for kind in ("swap", "replace")}},
        **FROM_CLIP, section="HN and HP+HN", short="losses of negatives and positives",
    ),
    "fsc_clip": Method(
        "FSC-CLIP", "fsc_clip", "CLIP + 0.5 F", "Oh 2024",
        "two of three generators of negatives are ours",
        "torch, also as released: parity/test_methods.py",
        (Row("FSC-CLIP", "fsc_clip", "fsc_clip:data=coco"),), {"fsc_clip": "fsc_clip"}, **FROM_CLIP,
        short="focal negatives",
    ),
    "fsc_clip_local": Method(
        "FSC-CLIP, both losses", "fsc_clip", "CLIP + 0.5 F + 0.2 F'", "Oh 2024",
        "as FSC-CLIP, with F'", "torch, also as released: parity/test_methods.py",
        scenes={"fsc_clip_local": "fsc_clip:local=0.2"}, **FROM_CLIP, section="FSC-CLIP",
    ),
    "siglip_ft": Method(
        "SigLIP-FT", "siglip_ft", "SigLIP", "Li 2024",
        "on the scenes `c2lip` without phrases",
        "open_clip, schedule in torch: parity/test_training.py",
        scenes={"siglip_ft": "c2lip"}, base="siglip", section="C2LIP",
    ),
    "c2lip": Method(
        "C2LIP", "c2lip", "SigLIP + Phrase + 0.01 Phrase'", "Pham 2026",
        "shared phrases are masked; at most `bag` phrases",
        "torch, also as released: parity/test_methods.py", scenes={"c2lip": "c2lip"}, **FROM_SIGLIP,
    ),
    "siglip2_dense": Method(
        "SigLIP 2's dense losses", "siglip2_dense", "SigLIP + Crop + 0.25 Mask", "Tschannen 2025",
        "temperatures and projections of DINO, iBOT and DINOv2; no decoder",
        "numpy: losses/test_self_distill.py",
        scenes={"siglip2_dense": "siglip2_dense"}, **FROM_SIGLIP,
    ),
    "tripletclip": Method(
        "TripletCLIP", "tripletclip", "NegCLIP, twice", "Patel 2024",
        "each text is encoded twice", "torch: parity/test_methods.py",
        (Row("TripletCLIP", "tripletclip", "tripletclip:data=coco"),),
        {"tripletclip": "tripletclip"}, **FROM_CLIP, section="TripletCLIP and CoN-CLIP",
    ),
    "conclip": Method(
        "CoN-CLIP", "conclip", "NegCLIP with distractors",
        "Singh 2025", "each text is encoded twice", "torch: parity/test_methods.py",
        (Row("CoN-CLIP", "conclip", "conclip:data=coco"),),
        {"conclip": "conclip"}, **FROM_CLIP, section="TripletCLIP and CoN-CLIP",
    ),
    "ce_clip": Method(
        "CE-CLIP", "ce_clip", "NegCLIP + 0.2 R + 0.3 I", "Zhang 2024",
        "three kinds of negatives, by word tables, in place of four; I as described",
        "torch, also as released: parity/test_methods.py",
        (Row("CE-CLIP", "ce_clip", "ce_clip:data=coco"),), {"ce_clip": "ce_clip"}, **FROM_CLIP,
    ),
    "read_clip": Method(
        "READ-CLIP", "read_clip", "NegCLIP + 0.5 Para", "Kwon 2025",
        "without the reconstruction by a T5 of the published numbers",
        "torch: parity/test_methods.py",
        (Row("READ-CLIP", "read_clip", "read_clip:data=coco"),),
        {"read_clip": "read_clip"}, **FROM_CLIP,
    ),
    "degla": Method(
        "DeGLA", "degla", "NegCLIP + 0.1 N + 0.1 T + D", "Hu 2025",
        "negatives by rules unless given; T against own negatives",
        "torch, also as released: parity/test_methods.py", scenes={"degla": "degla"}, **FROM_CLIP,
    ),
    "csclip": Method(
        "CS-CLIP", "csclip", "NegCLIP + 0.5 U", "Kargi 2026",
        "units drawn equally often; word tables change the caption",
        "torch: parity/test_methods.py",
        (Row("CS-CLIP", "csclip", "csclip:data=coco"),), {"csclip": "csclip"}, **FROM_CLIP,
    ),
    "clic": Method(
        "CLIC", "clic", "0.5 C + 0.5 S + E, and CLIP of single images", "Peleg 2025",
        "both kinds of images in each step; swapped words by tables",
        "torch: parity/test_methods.py", scenes={"clic": "clic"}, **FROM_CLIP,
    ),
}
