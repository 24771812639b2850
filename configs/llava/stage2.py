"""LLaVA-1.5's second stage: conversations, with the loss on the answers alone.

  python -m vlc_jax.main --workdir runs/llava \\
    --config configs/llava/stage2.py:weights=runs/stage1,tokenizer=VICUNA,path=A.json,image_folder=A

Liu et al. 2023 (arXiv:2310.03744), as their LoRA recipe: rank 128, alpha 256 and dropout .05 on all
matrices of the language model's blocks, 319.8 million parameters of a 7B, at 2e-4; the projector in
full at 2e-5; image tower, embedding and head of the language model frozen; batches of 128, one
epoch, 3 % of warmup and a cosine, no weight decay, 2,048 tokens with the image's. train=all is
their other recipe: no LoRA, the language model whole, in float32, and the projector at 2e-5.

"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025,
table 5) has What'sUp by VQAScore, also of the model that reads the class token alone: select=cls
and a first stage of the same.

Table 6 of "On Erroneous Agreements of CLIP Image Embeddings" quotes two more models, which differ
from LLaVA-1.5 (train=all) in one thing. LLaVA + RP: 12,688 pairs of Img-Diff (Jiao et al. 2024,
arXiv:2408.04594) are added, img_diff_object_replacement.json to path and its folder to
image_folder. LLaVA + DIVA: the first stage starts from DIVA's CLIP (Wang et al. 2024,
arXiv:2407.20171), OpenAI-ViT-L-14-336.pth. Pairs of MMVP are graded by hand there, here by the
letter that is written.

Not as in the paper: 2,048 tokens do not count the text before the image (35 of Vicuna), and a
conversation without an image has the same token limit as one with; batches are not grouped by
length, nor by conversations with and without an image, so that most are as long as the latter.

Arguments: weights (the workdir of a first stage, or a folder of LLaVA); train=lora, or all;
text_only=0 leaves out conversations without an image, 40,688 of llava_v1_5_mix665k.json (shards: as
they were prepared, with --answers conversation --text-only); root (the folder of published sets to
evaluate after the last step); sets and protocols of them, as in configs/eval/llava.py (by default
What'sUp by VQAScore); the others as in configs/llava/stage1.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, llava_stages, pretrained
from vlc_jax.configs.eval import llava as evaluation

BLOCKS = r"head/lm/blocks/(query|key|value|out|gate|up|down)/kernel"
ARGUMENTS = {
    **llava_stages.ARGUMENTS,
    **evaluation.ARGUMENTS,
    "batch": 128,
    "train": arguments.OneOf("lora", "all"),
    "text_only": 1,
    "sets": pretrained.WHATSUP,
    "protocols": "vqascore",
}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    config = llava_stages.make(args)
    with config.unlocked():
        # a text that is no conversation (benchmarks) is scored by VQAScore
        config.text.tokenizer_options.question = llava_stages.VQASCORE
        if args.train == "lora":
            config.lora.update({"targets": BLOCKS, "rank": 128, "alpha": 256.0, "dropout": 0.05})
            config.lora.full = "head/projector/.*"
            config.optimizer.learning_rate = 2e-4
            config.optimizer.learning_rate_multipliers = (("head/projector/.*", 0.1),)
        else:
            config.frozen = ("image", "logit_scale")
            config.model.head.param_dtype = "float32"
            config.optimizer.learning_rate = 2e-5
        # 3 % of the steps of mix-665K: 5,197, without its conversations without an image 4,879
        config.optimizer.warmup_steps = 156 if args.text_only else 146
        text_only = bool(args.text_only)
        pretrained.read_llava(config, args, answers="conversation", text_only=text_only)
        if args.root:
            config.eval.every = pretrained.LAST
            config.evals = ConfigDict(evaluation.evaluations(args, {}))
        config.sub_batches = 8  # each device of the authors has 16 rows, and the loss is their mean
    return config
