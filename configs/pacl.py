"""PACL (patch-aligned contrastive learning): patches pooled with text-dependent weights, on CLIP.

  python -m vlc_jax.main --config configs/pacl.py --workdir runs/pacl
  python -m vlc_jax.main --config configs/pacl.py:rope=qk_2d,image_tower=unlocked \\
    --workdir runs/pacl_qk
  python -m vlc_jax.main --workdir runs/pacl_llava --config \\
    configs/pacl.py:data=llava,weights=ViT-L-14-336px.pt,path=A.json+B.json,image_folder=A+B
  python -m vlc_jax.main --workdir runs/pacl_coco --config \\
    configs/pacl.py:data=coco,weights=open_clip_model.safetensors,path=captions_train2017.json

"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025),
table on token usage: data=llava, with rope=feature_1d, and with the outputs of LLM2CLIP's adapter
as vectors of all texts (text_encoder=FILE,noun_phrases=0; the authors take its image tower, too,
and keep one template of each web caption). Its sets have 102 or 103 pairs: a standard error is 3 to
4 points. The authors used 8 GPUs.

Of data=llava Adam, rate, epochs, batch, temperature, squashed pixels with jitter and ImageNet's
statistics, and captions are those of the code (lst627/CLIP-Embeds): of a conversation one answer is
drawn at each reading, and half of the captions become a noun phrase in a template. The committed
code weighs all patches alike but in a few of its classes, which pool by the caption of the pair;
the paper does not name the class of the table: pooling=uniform,eval_pooling=uniform is the other.

data=coco is the demonstration of a public PACL code (NMS05/Patch-Aligned-Contrastive-Learning):
ViT-B/16 trained on LAION-2B (whose activation is gelu) at 400 pixels, 625 patches, batch 1024; the
rest as with data=llava, but an image has five captions, of which one is drawn, where the code takes
the first.

Arguments: data=scenes|coco|llava; the arguments of configs/common/heads.py, pooling being pairwise
on the scenes, else own_caption. With data=coco and data=llava weights (llava: OpenAI's ViT-L/14 at
336 pixels; a folder that names other statistics is refused unless image_norm=clip); tokenizer; path
(llava: LCS-558K's and mix-665K's JSON files, joined by "+", a table or shards; coco: COCO captions
JSON, a table or shards); image_folder (likewise); noun_phrases (a share); tagger (spacy:PIPELINE or
precomputed:FILE, which takes no time); image_norm=imagenet|clip; validation; root, sets (as in
configs/clip_ft.py); batch; variant; size.
With data=llava answers=each|first|joined.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, heads
from vlc_jax.configs.common.arguments import OneOf

OPTIONS = heads.PATCHES | {
    "pooling": OneOf("own_caption", "pairwise", "uniform"),
    "eval_pooling": OneOf("sigmoid", "uniform"),
    "text_encoder": "clip",
    "connector": "none",
}
SCENES = heads.SCENES | OPTIONS
SCENES |= {"pooling": OneOf("pairwise", "own_caption", "uniform"), "hard_images": 1}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    coco, llava = heads.COCO | OPTIONS, heads.LLAVA | OPTIONS
    args = arguments.parse_data(argument, scenes=SCENES, coco=coco, llava=llava)
    has_vectors = args.text_encoder != "clip"
    if args.data == "scenes":
        config = heads.on_scenes(args, bool(args.hard_images), args.negatives)
    else:
        if has_vectors and args.noun_phrases:
            raise ValueError(
                "text_encoder: noun phrases are put into templates at each reading, so no file has "
                "their vectors: say noun_phrases=0"
            )
        config = heads.on_captions(args)
    with config.unlocked():
        head = {"pooling": args.pooling, "eval_pooling": args.eval_pooling}
        heads.use_patches(config, args, "pacl", weight=1.0, **head)
        if has_vectors:
            heads.use_vectors(config, args.text_encoder, args.connector)
    return config
