"""Rows of the tables of the papers: a published model, and the run that reproduces it.

The tables themselves, their columns and numbers, are vlc_jax/report/published/values.csv.
A run that several papers print is made once.
"""

from typing import NamedTuple

L14, SIGLIP, EVA = "CLIP ViT-L/14-336", "SigLIP ViT-L/16-384", "EVA-CLIP"
OF_SIZES = ("hard_positives",)  # its table 8, whose numbers are not known here
FINETUNING, NEGATIVES = "finetuning", "left/right negatives"
UNLOCKED = "image tower unlocked"
OF_SIGLIP = "family=siglip"
OF_EVA, OF_EVA_E = "variant=EVA01-g/14,size=224", "variant=EVA02-E/14,size=224"
OWN_CAPTION = "pooling=own_caption"
TRAINED = "image_tower=unlocked"
UNIFORM = "pooling=uniform,eval_pooling=uniform"
OF_1280 = "--config.model.image={'projection': 1280}"  # LLM2CLIP's image tower
LLM2CLIP = (  # as docs/mllm.md has it
    "--config.text.tokenizer=vectors",
    "--config.text.tokenizer_options={'path': '{vectors}'}",
    OF_1280,
    "--config.model.text={'connector': 'llm2clip', 'projection': 1280}",
)


class Paper(NamedTuple):
    """A paper.

    sources: keys of sources.csv whose tables are printed.
    sets: evaluated beside those of its numbers, and by rows of our own; names joined by +.
    scenes: benchmarks of the scenes in the table of --miniature.
    """

    title: str
    sources: tuple[str, ...]
    sets: str = ""
    scenes: tuple[str, ...] = ("scenes_attribute_swap", "scenes_relation_swap")


SPATIAL = "whatsup_a+whatsup_b+coco_spatial_one+coco_spatial_two+gqa_spatial_one+gqa_spatial_two"
OF_WHATSUP = ("scenes_whatsup", *Paper._field_defaults["scenes"])
PAPERS = {
    "acl2025": Paper(
        "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder",
        ("acl2025",),
        "whatsup_a_two_way+whatsup_b_two_way",
        OF_WHATSUP,
    ),
    "erroneous_agreements": Paper(
        "On Erroneous Agreements of CLIP Image Embeddings",
        ("erroneous_agreements",),
        scenes=OF_WHATSUP,
    ),
    "hard_positives": Paper(
        "The Hard Positive Truth about Vision-Language Compositionality",
        ("hard_positives",),
        "replace+swap",
        scenes=("scenes_replace", "scenes_swap", *Paper._field_defaults["scenes"]),
    ),
    # the shuffles are its second figure, which prints no numbers
    "aro": Paper(
        "When and why vision-language models behave like bags-of-words",
        ("aro", "aro_issue_33"),
        "coco_shuffled+flickr30k_shuffled",
        ("scenes_order", *Paper._field_defaults["scenes"]),
    ),
    "dcsm": Paper(
        "Is CLIP ideal? No. Can we fix it? Yes!",
        ("dcsm_issue_6",),
        f"{SPATIAL}+vg_attribution+clevr_bind+ncd_squares+negbench",
        OF_WHATSUP,
    ),
}


class Files(NamedTuple):
    """Files that a name of --given stands for.

    records: of an epoch; 0 where nothing is trained. arguments: example of those of a row's config.
    """

    arguments: str
    records: int = 0


B32, OF_L14 = "weights=ViT-B-32.pt", "weights=ViT-L-14-336px.pt"
LCS, VICUNA = "path=lcs558k.json,image_folder=lcs558k", "tokenizer=vicuna-7b-v1.5"
LLAVA = "path=lcs558k.json+mix665k.json,image_folder=lcs558k+images"
JOINED = "path=prepared/llava_joined,vectors=llm2vec.safetensors"
CC3M = f"{B32},language_model=distilroberta-base"
BLIP2 = "captions=captions/blip2,image_folder=cc3m"  # of DAC's authors
GIVEN = {
    "clip": Files(f"{OF_L14},{LLAVA}", 1_180_000),
    "l14": Files("weights=ViT-L-14.pt"),
    "b16": Files("weights=ViT-B-16.pt,pairs=dcsm_data", 110_000),
    "b16_texts": Files("weights=ViT-B-16.pt,path=train_neg_clip.tsv", 110_000),
    "b32": Files(B32),
    "rn50": Files("weights=RN50.pt"),
    "roberta": Files("weights=CLIP-ViT-B-32-roberta-base-laion2B-s12B-b32k"),
    "datacomp": Files("weights=CLIP-ViT-B-32-DataComp.XL-s13B-b90K"),
    "siglip": Files(f"weights=siglip-large-patch16-384,{LLAVA}", 1_180_000),
    "eva": Files(f"weights=EVA01_CLIP_g_14.pt,{LLAVA}", 1_180_000),
    "eva_e": Files(f"weights=EVA02_CLIP_E.pt,{LLAVA}", 1_180_000),
    "vectors": Files(
        f"weights=LLM2CLIP-Openai-L-14-336,{LLAVA},text_encoder=llm2clip.npy", 1_180_000
    ),
    "llm2clip": Files("weights=LLM2CLIP-Openai-L-14-336,vectors=llama3.npy"),
    "llm2vec": Files(f"{OF_L14},{JOINED}", 1_180_000),
    "llm2vec_siglip": Files(f"weights=siglip-large-patch16-384,{JOINED}", 1_180_000),
    "llava": Files("path=llava-1.5-7b-hf"),
    "instructblip": Files("path=instructblip-vicuna-7b"),
    "otter": Files("path=OTTER-Image-MPT7B,tokenizer=mpt-7b-instruct"),
    "blip_flickr30k": Files("weights=blip-itm-base-flickr"),
    "blip_coco": Files("weights=blip-itm-base-coco"),
    "xvlm": Files("weights=16m_base_model_state_step_199999.th,tokenizer=bert-base-uncased"),
    "xvlm_coco": Files("weights=itr_coco/checkpoint_9.pth,tokenizer=bert-base-uncased"),
    "xvlm_llava": Files(
        f"weights=16m_base_model_state_step_199999.th,tokenizer=bert-base-uncased,{LLAVA}",
        1_180_000,
    ),
    "phi3": Files("path=LLaVA-Phi-3-mini-4k-instruct"),
    "llama3": Files("path=LLaVA-Meta-Llama-3-8B-Instruct"),
    "stage1": Files(f"{OF_L14},language_model=vicuna-7b-v1.5,{LCS}", 558_128),
    "stage2": Files(f"{VICUNA},path=mix665k.json,image_folder=images", 665_298),
    "diva": Files(f"weights=OpenAI-ViT-L-14-336.pth,language_model=vicuna-7b-v1.5,{LCS}", 558_128),
    "rp": Files(
        f"{VICUNA},path=mix665k.json+img_diff_object_replacement.json,"
        "image_folder=images+object_replacement",
        677_986,
    ),
    "vlm2vec": Files(f"weights=llava-1.5-7b-hf,{LLAVA}", 1_180_000),
    "negclip": Files(f"{B32},path=train_neg_clip.tsv", 110_000),
    "coco": Files(f"{B32},path=captions_train2017.json,image_folder=train2017", 118_287),
    "hp": Files(
        f"{B32},path=captions_train2017.json,image_folder=train2017,replace_hp=replace_hp.jsonl,"
        "swap_hp=swap_hp.jsonl",
        118_287,
    ),
    "cc3m": Files(f"{CC3M},path=cc3m/train.tsv", 2_900_000),
    "cc3m_positives": Files(f"{CC3M},path=cc3m_positives.jsonl", 2_900_000),
    "dac_llm": Files(f"{CC3M},{BLIP2},dense=dense/llm", 2_900_000),
    "dac_sam": Files(f"{CC3M},{BLIP2},dense=dense/sam", 2_900_000),
}


class Row(NamedTuple):
    """A model and its run.

    model: in values.csv; "" for a run that others start from, or for a row of our own.
    run: name of the run. label: of a row of our own.
    given: what its files are, a key of GIVEN. config: at full size, with arguments.
    scenes: config of --miniature; "" without one.
    base: row that it starts from at full size; in miniature it is the scenes' CLIP.
    flags: further flags, with {NAME} for an argument of `given`. without: arguments of `given`
      that are not this row's. papers: beside those whose tables have the model's numbers.
    """

    model: str
    run: str
    given: str = ""
    config: str = ""
    scenes: str = ""
    base: str = ""
    flags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    label: str = ""


def _finetuned(
    model: str, run: str, given: str, arguments: str = "", scenes: str = "", end: str = ""
) -> tuple[Row, ...]:
    """A model finetuned on LLaVA's data, without and with left / right negatives."""
    rows = []
    for words, name, negatives in (
        (FINETUNING, f"{run}_ft", ""),
        (NEGATIVES, f"{run}_ft_negatives", "negatives=leftright"),
    ):
        config = f"llava/clip_ft:{','.join(filter(None, (arguments, negatives)))}"
        of_scenes = f"leftright:{scenes},{negatives or 'negatives=none'}" if scenes else ""
        rows.append(Row(f"{model} + {words}{end}", name, given, config, of_scenes))
    return tuple(rows)


def _on_vectors(model: str, run: str, given: str, arguments: str, end: str = "") -> tuple[Row, ...]:
    """The same against a language model's vectors of the texts."""
    return tuple(
        Row(
            f"{model} + {words}{end}",
            f"{run}{name}",
            given,
            f"llava/llm2vec:{arguments}{more}".rstrip(","),
        )
        for words, name, more in (
            (FINETUNING, "", ""),
            (NEGATIVES, "_negatives", "negatives=leftright"),
        )
    )


def _head(model: str, run: str, head: str, arguments: str, label: str = "") -> Row:
    """PACL or SPARC on CLIP; on the scenes without hard images."""
    config, scenes = f"{head}:data=llava,{arguments}", f"{head}:hard_images=0,{arguments}"
    papers = () if model else ("acl2025",)
    return Row(model, run, "clip", config, scenes, label=label, papers=papers)


def _lora(model: str, run: str, select: str) -> tuple[Row, ...]:
    """Both stages of a LLaVA."""
    first = f"{run}_stage1"
    return (
        Row("", first, "stage1", f"llava/stage1:select={select}", papers=("acl2025",)),
        Row(model, run, "stage2", f"llava/stage2:select={select}", base=first),
    )


def _whole(model: str, run: str, given: str, base: str) -> Row:
    """A LLaVA whose language model is trained whole; answers graded by hand, here by the letter."""
    config = "llava/stage2:train=all,sets=mmvp,protocols=written"
    return Row(f"LLaVA-1.5-7B + {model}", run, given, config, base=base)


def _hp(model: str, run: str, arguments: str, *without: str) -> Row:
    configs = (f"hp_hn:{data}{arguments}" for data in ("data=coco", "pooling=mean"))
    return Row(model, run, "hp", *configs, without=without)


OF_LLAVA = (
    Row("LLaVA-1.5-7B", "llava", "llava", "eval/llava:"),
    Row("Otter-Image-MPT7B", "otter", "otter", "eval/llava:"),
    Row("InstructBLIP-Vicuna-7B", "instructblip", "instructblip", "eval/llava:"),
    Row("Phi-3-V-3.8B", "phi3", "phi3", "eval/llava:"),
    Row("LLaMA-3-V-8B", "llama3", "llama3", "eval/llava:"),
    *_lora("LLaVA-1.5-7B-LoRA", "llava_lora", "patch"),
    *_lora("[CLS]-LLaVA-1.5-7B-LoRA", "llava_cls", "cls"),
    Row(
        "LLaVA-1.5-7B + M3ID (alpha .6, lambda .15)",
        "llava_m3id",
        "llava",
        "eval/llava:protocols=m3id,sets=mmvp",
    ),
    _whole("RP", "llava_rp", "rp", "llava_lora_stage1"),
    Row("", "llava_diva_stage1", "diva", "llava/stage1:", papers=("erroneous_agreements",)),
    _whole("DIVA", "llava_diva", "stage2", "llava_diva_stage1"),
    Row("VLM2Vec LLaVA-1.5-7B", "vlm2vec", "vlm2vec", "llava/vlm2vec:"),
    Row(
        "VLM2Vec LLaVA-1.5-7B, no question in the prompt",
        "vlm2vec_plain",
        "vlm2vec",
        "llava/vlm2vec:question=0",
    ),
)
OF_CLIP = (
    Row(L14, "l14_336", "clip", "eval/all:variant=L/14-336,size=336", papers=OF_SIZES),
    Row("CLIP ViT-L/14", "l14", "l14", "eval/all:variant=L/14", papers=OF_SIZES),
    Row("CLIP ViT-B/32", "b32", "b32", "eval/all:variant=B/32"),
    Row("", "b16", "b16", "eval/all:variant=B/16", papers=OF_SIZES, label="CLIP ViT-B/16"),
    Row("", "rn50", "rn50", "eval/all:variant=RN50", papers=OF_SIZES, label="CLIP RN50"),
    Row(
        "",
        "roberta",
        "roberta",
        "eval/all:family=clip_hf,variant=roberta-B/32",
        papers=OF_SIZES,
        label="CLIP ViT-B/32, RoBERTa",
    ),
    Row(
        "",
        "datacomp",
        "datacomp",
        "eval/all:variant=B/32",
        papers=OF_SIZES,
        flags=("--config.model.activation=gelu",),
        label="CLIP ViT-B/32, DataComp",
    ),
    Row(SIGLIP, "siglip", "siglip", f"eval/all:{OF_SIGLIP},variant=SigLIP-L/16-256,size=384"),
    Row(EVA, "eva", "eva", f"eval/all:{OF_EVA}"),
    Row("LLM2CLIP", "llm2clip", "llm2clip", "eval/all:variant=L/14-336,size=336", flags=LLM2CLIP),
    *_finetuned(L14, "l14_336", "clip", scenes="pooling=mean"),
    *_finetuned(SIGLIP, "siglip", "siglip", OF_SIGLIP, scenes="family=siglip"),
    *_finetuned(EVA, "eva", "eva", OF_EVA),
    *_finetuned(
        SIGLIP,
        "siglip_unlocked",
        "siglip",
        f"{OF_SIGLIP},image_tower=unlocked",
        "family=siglip,image_tower=unlocked",
        f", {UNLOCKED}",
    ),
    *_on_vectors(f"{L14} + LLM2Vec", "llm2vec", "llm2vec", ""),
    *_on_vectors(f"{SIGLIP} + LLM2Vec", "llm2vec_siglip", "llm2vec_siglip", f"{OF_SIGLIP},"),
    *_on_vectors(
        f"{SIGLIP} + Llama-2-7B-MNTP",
        "llm2vec_siglip_unlocked",
        "llm2vec_siglip",
        f"{OF_SIGLIP},image_tower=unlocked,",
        f", {UNLOCKED}",
    ),
    _head(f"{L14} + PACL", "pacl", "pacl", OWN_CAPTION),
    _head(f"{L14} + PACL + RoPE", "pacl_feature_1d", "pacl", f"{OWN_CAPTION},rope=feature_1d"),
    _head(f"{L14} + SPARC + RoPE", "sparc_feature_1d", "sparc", "text_tokens=all,rope=feature_1d"),
    Row(
        f"{L14} + PACL + RoPE + stronger text encoder",
        "pacl_vectors",
        "vectors",
        f"pacl:data=llava,{OWN_CAPTION},rope=feature_1d,noun_phrases=0",
        flags=(OF_1280,),
    ),
)
# Not in the paper: our controls and variants.
OURS = (
    *(
        row._replace(model="", label=row.model, papers=("acl2025",))
        for row in _finetuned("EVA02-CLIP E/14", "eva_e", "eva_e", OF_EVA_E)
    ),
    _head("", "pacl_uniform", "pacl", UNIFORM, "PACL, patches weighed alike"),
    _head("", "pacl_pairwise", "pacl", "pooling=pairwise", "PACL, pooled for every text"),
    *(
        _head("", f"pacl_{name}", "pacl", f"{OWN_CAPTION},{arguments}", label)
        for name, arguments, label in (
            ("feature_2d", "rope=feature_2d", "PACL + RoPE by row and column"),
            ("unlocked", TRAINED, "PACL, image tower trained"),
            ("qk_1d", f"{TRAINED},rope=qk_1d", "PACL + RoPE inside the tower, 1-D"),
            ("qk_2d", f"{TRAINED},rope=qk_2d", "PACL + RoPE inside the tower, 2-D"),
            ("negatives", "negatives=leftright", "PACL + left/right negatives"),
        )
    ),
    _head("", "sparc", "sparc", "text_tokens=real", "SPARC"),
)
OF_HARD_TEXTS = (
    Row("CLIP-FT", "clip_ft", "negclip", "clip_ft:data=coco", "clip_ft:pooling=mean"),
    Row("NegCLIP", "negclip", "negclip", "negclip:data=coco", "negclip:pooling=mean"),
    Row("CLIP-COCO", "clip_coco", "coco", "clip_coco:", "clip_ft:pooling=mean"),
    *(
        Row(
            f"CREPE-{kind}",
            f"crepe_{kind}",
            "coco",
            f"crepe:data=coco,kind={kind}",
            f"crepe:pooling=mean,kind={kind}",
        )
        for kind in ("swap", "replace")
    ),
    Row("SVLC", "svlc", "cc3m", "svlc:data=coco", "svlc:pooling=mean"),
    Row("SVLC+Pos", "svlc_pos", "cc3m_positives", "svlc_pos:data=coco", "svlc_pos:pooling=mean"),
    Row("DAC-LLM", "dac_llm", "dac_llm", "dac:data=coco", "dac:pooling=mean"),
    Row("DAC-SAM", "dac_sam", "dac_sam", "dac:data=coco"),
    Row("HN", "hn", "coco", "hn:data=coco", "hn:pooling=mean"),
    _hp("HP+HN", "hp_hn", ""),
    _hp("HP+HN, swap only", "hp_hn_swap_only", ",kind=swap", "replace_hp"),
    _hp("HP+HN, replace only", "hp_hn_replace_only", ",kind=replace", "swap_hp"),
    *(
        _hp(f"HP+HN, weight {printed}", f"hp_hn_w{weight}", f",hn_weight={weight}")
        for printed, weight in (("0", "0"), (".25", "0.25"), (".5", "0.5"), (".75", "0.75"))
    ),
)
OF_BLIP = tuple(  # as ARO's code scores it
    Row(
        f"BLIP base, {data}",
        f"blip_{data.lower()}",
        f"blip_{data.lower()}",
        config="eval/all:family=blip",
        flags=("--config.model.head.scores=both",),
    )
    for data in ("Flickr30k", "COCO")
)
_ITM_AND_ITC = {"config": "eval/all:family=xvlm", "flags": ("--config.model.head.scores=both",)}
OF_XVLM = (  # the pretrained ones as What'sUp's code scores them
    Row("XVLM-16M", "xvlm", "xvlm", **_ITM_AND_ITC, papers=OF_SIZES),
    Row("XVLM-COCO", "xvlm_coco", "xvlm_coco", **_ITM_AND_ITC),
    Row("XVLM-16M + finetuning", "xvlm_ft", "xvlm_llava", config="xvlm_ft:data=llava"),
)
OF_DCSM = (  # in the wordings of its evaluation
    *(
        Row(
            "",
            f"dcsm_{name}",
            name,
            f"eval/all:variant={variant},wording=dcsm_baseline",
            papers=("dcsm",),
            label=f"CLIP ViT-{variant}",
        )
        for name, variant in (("b16", "B/16"), ("b32", "B/32"))
    ),
    Row("DCSM", "dcsm", "b16", "dcsm:data=coco", "dcsm:", papers=("dcsm",)),
    Row(
        "",
        "dcsm_texts",
        "b16_texts",
        "dcsm:data=coco,opposite=text",
        "dcsm:opposite=text",
        papers=("dcsm",),
        label="DCSM, opposite captions",
    ),
)
ROWS = (*OF_CLIP, *OF_LLAVA, *OURS, *OF_HARD_TEXTS, *OF_BLIP, *OF_XVLM, *OF_DCSM)
