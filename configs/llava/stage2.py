"""LLaVA-1.5's second stage with LoRA: conversations, with the loss on the answers alone.

  python -m vlc_jax.main --workdir runs/llava \\
    --config configs/llava/stage2.py:weights=runs/stage1,tokenizer=VICUNA,path=A.json,image_folder=A

Liu et al. 2023 (arXiv:2310.03744), as their LoRA recipe: rank 128, alpha 256 and dropout .05 on all
matrices of the language model's blocks, 319.8 million parameters of a 7B, at 2e-4; the projector in
full at 2e-5; image tower, embedding and head of the language model frozen; batches of 128, one
epoch, 3 % of warmup and a cosine, no weight decay, 2,048 tokens with the image's. With
select=cls and a first stage of the same, the model of "Exploring How Generative MLLMs Perceive More
Than CLIP with the Same Vision Encoder" (ACL 2025) that reads the class token alone. Not yet run
here.

Not as in the paper: 2,048 tokens do not count the text before the image (35 of Vicuna), and a
conversation without an image has the same token limit as one with; batches are not grouped by
length, nor by conversations with and without an image, so that most are as long as the latter.

Arguments: weights (the workdir of a first stage, or a folder of LLaVA); text_only=0 leaves out
conversations without an image, 40,688 of llava_v1_5_mix665k.json (shards: as they were prepared,
with --answers conversation --text-only); the others as in configs/llava/stage1.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, llava, pretrained

BLOCKS = r"head/lm/blocks/(query|key|value|out|gate|up|down)/kernel"


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **llava.ARGUMENTS, batch=128, text_only=1)
    config = llava.make(args)
    with config.unlocked():
        config.lora.update({"targets": BLOCKS, "rank": 128, "alpha": 256.0, "dropout": 0.05})
        # a text that is no conversation (benchmarks) is scored by VQAScore
        config.text.tokenizer_options.question = llava.VQASCORE
        config.lora.full = "head/projector/.*"
        config.optimizer.learning_rate = 2e-4
        config.optimizer.learning_rate_multipliers = (("head/projector/.*", 0.1),)
        # 3 % of the steps of mix-665K: 5,197, without its conversations without an image 4,879
        config.optimizer.warmup_steps = 156 if args.text_only else 146
        text_only = bool(args.text_only)
        pretrained.read_llava(config, args, answers="conversation", text_only=text_only)
        config.sub_batches = 8  # each device of the authors has 16 rows, and the loss is their mean
    return config
