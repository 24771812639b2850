"""LLaVA-1.5's first stage: only the projector between a frozen CLIP and a frozen language model is
trained, on captions.

  python -m vlc_jax.main --workdir runs/stage1 \\
    --config configs/llava/stage1.py:weights=CLIP,language_model=VICUNA,path=A.json,image_folder=A

Liu et al. 2023 (arXiv:2310.03744): blip_laion_cc_sbu_558k.json, one epoch of 558,128 pairs in
batches of 256, learning rate 1e-3 with 3 % of warmup and a cosine, no weight decay, images padded
to a square. A text is the image and its caption alone. The authors print no score of this stage,
which answers no question yet, so it takes no `root`.

Arguments: weights (CLIP ViT-L/14 at 336 pixels, a file or folder); language_model (a folder of
Hugging Face); decoder=vicuna_7b|llama3_8b|phi3_mini, that model; path (LLaVA's JSON file, several
joined by "+", or shards); image_folder; tokenizer (its file or folder; by default language_model);
select=patch, or cls: the class token alone; batch; vocab (rows of the embedding, if not the
model's own).
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, llava_stages


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **llava_stages.ARGUMENTS, language_model="", batch=256)
    args.tokenizer = args.tokenizer or args.language_model
    config = llava_stages.make(args)
    with config.unlocked():
        config.head_from = args.language_model or None
        config.frozen = ("image", "head/lm", "logit_scale")
        config.model.head.prefix = ""  # the start token alone
        config.optimizer.learning_rate = 1e-3
        config.optimizer.warmup_steps = 65  # 3 % of 2,180
    return config
