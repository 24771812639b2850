"""PACL (patch-aligned contrastive learning): patches pooled with text-dependent weights, on CLIP.

  python -m vlc_jax.main --workdir runs/pacl \\
    --config configs/llava/pacl.py:weights=ViT-L-14-336px.pt,path=A.json+B.json,image_folder=A+B
  python -m vlc_jax.main --workdir runs/pacl_rope \\
    --config configs/llava/pacl.py:rope=feature_1d,weights=ViT-L-14-336px.pt,path=prepared/llava

"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025),
table on token usage. Must reproduce What'sUp, individual and pairs, A left / right, A on / under, B
left / right, B front / behind: CLIP 49.0 and 1.9, 61.7 and 23.3, 54.9 and 10.8, 51.5 and 7.8; with
patch tokens, this config, 47.6 and 9.7, 52.9 and 10.7, 52.9 and 9.8, 51.5 and 6.9; with
rope=feature_1d 54.9 and 22.3, 46.1 and 13.6, 52.0 and 20.6, 45.6 and 12.7; with that and what
LLM2CLIP's adapter gives of all texts (text_encoder=FILE,noun_phrases=0; the authors take its image
tower, too, and keep one template of each web caption) 50.5 and 10.7, 48.5 and 6.8, 50.0 and 15.7,
53.9 and 21.6; chance 50 and 25. These are 102 or 103 pairs: a standard error is 3 to 4 points. Not
yet run at full size here; an estimate: ten times over 1.18 million images take 14 hours of one A100
at 30 % of its bfloat16 peak, if the data come that fast (the authors used 8 GPUs).

Adam, rate, epochs, batch, temperature, squashed pixels with jitter and ImageNet's statistics, and
captions are those of the code (lst627/CLIP-Embeds): of a conversation one answer is drawn at each
reading, and half of the captions become a noun phrase in a template. The committed code weighs all
patches alike but in a few of its classes, which pool by the own caption; which of them trained the
table is not said: pooling=uniform,eval_pooling=uniform is the other.

Arguments: weights (OpenAI's ViT-L/14 at 336 pixels; a folder that names other statistics is refused
unless image_norm=clip); tokenizer; path (LCS-558K's and mix-665K's JSON files, joined by "+", a
table, or shards); image_folder (likewise); answers=each|first|joined; noun_phrases (a share);
tagger (spacy:PIPELINE or precomputed:FILE, which takes no time); image_norm=imagenet|clip;
validation; batch; variant; size; and those of configs/common/heads.py, pooling being own_caption.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, heads

ARGUMENTS = heads.CAPTIONS | heads.PACL | {"pooling": "own_caption"}


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.check(arguments.parse(argument, **ARGUMENTS))
    config = heads.on_captions(args)
    with config.unlocked():
        heads.pacl(config, args)
    return config
