"""The papers whose tables are reproduced, and the files that their rows read.

Rows are in vlc_jax/configs/common/methods; the tables themselves, their columns and numbers, are
vlc_jax/report/published/values.csv. A run that several papers print is made once.
"""

from typing import NamedTuple


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


B32, OF_L14 = "weights=ViT-B-32.pt", "weights=ViT-L-14-336px.pt"
LCS, VICUNA = "path=lcs558k.json,image_folder=lcs558k", "tokenizer=vicuna-7b-v1.5"
LLAVA = "path=lcs558k.json+mix665k.json,image_folder=lcs558k+images"
JOINED = f"{LLAVA},vectors=llm2vec.safetensors"
CC3M = f"{B32},language_model=distilroberta-base"
BLIP2 = "captions=captions/blip2,image_folder=cc3m"  # of DAC's authors
COCO = f"{B32},path=captions_train2017.json,image_folder=train2017"
XVLM = "weights=16m_base_model_state_step_199999.th,tokenizer=bert-base-uncased"
GIVEN = {  # name of --given -> what it stands for: example of arguments of a row's config
    "clip": f"{OF_L14},{LLAVA}",
    "l14": "weights=ViT-L-14.pt",
    "b16": "weights=ViT-B-16.pt,pairs=dcsm_data",
    "b16_texts": "weights=ViT-B-16.pt,path=train_neg_clip.tsv",
    "b32": B32,
    "rn50": "weights=RN50.pt",
    "roberta": "weights=CLIP-ViT-B-32-roberta-base-laion2B-s12B-b32k",
    "datacomp": "weights=CLIP-ViT-B-32-DataComp.XL-s13B-b90K",
    "siglip": f"weights=siglip-large-patch16-384,{LLAVA}",
    "eva": f"weights=EVA01_CLIP_g_14.pt,{LLAVA}",
    "eva_e": f"weights=EVA02_CLIP_E.pt,{LLAVA}",
    "vectors": f"weights=LLM2CLIP-Openai-L-14-336,{LLAVA},text_encoder=llm2clip.npy",
    "llm2clip": "weights=LLM2CLIP-Openai-L-14-336,vectors=llama3.npy",
    "llm2vec": f"{OF_L14},{JOINED}",
    "llm2vec_siglip": f"weights=siglip-large-patch16-384,{JOINED}",
    "llava": "path=llava-1.5-7b-hf",
    "instructblip": "path=instructblip-vicuna-7b",
    "otter": "path=OTTER-Image-MPT7B,tokenizer=mpt-7b-instruct",
    "blip_flickr30k": "weights=blip-itm-base-flickr",
    "blip_coco": "weights=blip-itm-base-coco",
    "xvlm": XVLM,
    "xvlm_coco": "weights=itr_coco/checkpoint_9.pth,tokenizer=bert-base-uncased",
    "xvlm_llava": f"{XVLM},{LLAVA}",
    "phi3": "path=LLaVA-Phi-3-mini-4k-instruct",
    "llama3": "path=LLaVA-Meta-Llama-3-8B-Instruct",
    "stage1": f"{OF_L14},language_model=vicuna-7b-v1.5,{LCS}",
    "stage2": f"{VICUNA},path=mix665k.json,image_folder=images",
    "diva": f"weights=OpenAI-ViT-L-14-336.pth,language_model=vicuna-7b-v1.5,{LCS}",
    "rp": (
        f"{VICUNA},path=mix665k.json+img_diff_object_replacement.json,"
        "image_folder=images+object_replacement"
    ),
    "vlm2vec": f"weights=llava-1.5-7b-hf,{LLAVA}",
    "negclip": f"{B32},path=train_neg_clip.tsv",
    "coco": COCO,
    "hp": f"{COCO},replace_hp=replace_hp.jsonl,swap_hp=swap_hp.jsonl",
    "cc3m": f"{CC3M},path=cc3m/train.tsv",
    "cc3m_positives": f"{CC3M},path=cc3m_positives.jsonl",
    "dac_llm": f"{CC3M},{BLIP2},dense=dense/llm",
    "dac_sam": f"{CC3M},{BLIP2},dense=dense/sam",
}
