"""VLM2Vec of LLaVA-1.5-7B: an embedder of (image, question) pairs, by DoRA on LLaVA's decoder.

  python -m vlc_jax.main --workdir runs/vlm2vec --config.mesh.fsdp=8 \\
    --config configs/llava/vlm2vec.py:weights=llava-1.5-7b-hf,path=A.json+B.json,image_folder=A+B

"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025;
lst627/CLIP-Embeds), after Jiang et al. 2024 (arXiv:2410.05160).

An image is read with "Represent the given image with the following question:" and the turn before
the answer, which is the target as it is; one answer is drawn at each reading. In-batch negatives of
256 pairs, each image against all texts, temperature .02, 1,000 steps at 2e-5 with 100 of warmup and
linear decay; DoRA of rank 8, alpha 64 and dropout .1 on query, key, value, out and down of the
decoder (12.9 million parameters). Every 100th checkpoint is kept: the paper's numbers are of step
900. `microbatch` rows are encoded at a time.

A conversation without an image, 40,688 of mix-665K, is a query of text: "Find the text that can
answer the given query:" and a question of it.

Not as in the paper: the first turn of a conversation has the template, too (theirs goes in as
it is); text up to 256 tokens behind the image (theirs 1,024 in all); pixels are squashed to the
square in evaluation as in training (theirs are cropped: --config.input.eval_crop=centre);
embeddings and cosines are float32, in bfloat16 they tie.

With model=qwen3_vl the same adapters and losses train Qwen3-VL-Embedding-2B (weights: its folder,
or that of Qwen3-VL-2B; vocab is then not read) in its own conversation, with images at their own
aspect ratio of up to size^2 pixels: not a published recipe.

Arguments: weights (a folder of LLaVA-1.5 in Hugging Face's or its authors' form); model=llava or
qwen3_vl; size (of the images of Qwen3-VL, 512: 256 tokens); tokenizer (a
tokenizer.json or its folder; by default that of the weights); vocab (32064 of llava-hf, 32000 of
the authors' files); path, image_folder (LLaVA's JSON files and the folders of their images, joined
by "+", or shards); question=1|0; text_only=0 leaves out conversations without an image (shards: as
they were prepared, with --answers each --text-only); batch; microbatch; root (the folder of
published sets to evaluate); sets (of it; by default What'sUp, MMVP and MMVP-VLM).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, heads, pretrained

TEMPLATES = {
    0: "Represent the given image.",
    1: "Represent the given image with the following question: {}",
}
TEXT_ONLY = "Find the text that can answer the given query: {}"
START = 1  # id of <s>, before the image and before a text
ARGUMENTS = {
    **pretrained.ARGUMENTS,
    "model": arguments.OneOf("llava", "qwen3_vl"),
    "size": 512,
    "vocab": 32_064,
    "question": arguments.OneOf(1, 0),
    "batch": 256,
    "microbatch": 8,
    "text_only": 1,
    "root": "",
    "sets": f"{pretrained.WHATSUP}+mmvp+mmvp_vlm",
}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    config = default.get_config()
    with config.unlocked():
        config.init_from = args.weights or None
        _use_model(config, args)
        config.model.remat = "block"
        config.model.logit_scale_init = 1 / heads.TEMPERATURE_OF_VLM2VEC
        heads.use_dora(config, dropout=0.1)
        config.losses = ConfigDict({"infonce": default.loss(1.0, direction="image_to_text")})
        pretrained.read_llava(config, args, answers="each", text_only=bool(args.text_only))
        config.input.question = TEMPLATES[args.question]
        config.input.text_only_question = TEXT_ONLY if args.text_only else ""
        config.text.lengths = (32, 64, 128)
        config.steps, config.batch_size, config.microbatch = 1000, args.batch, args.microbatch
        config.optimizer.update({"learning_rate": 2e-5, "schedule": "linear", "b2": 0.999})
        config.optimizer.update({"eps": 1e-8, "weight_decay": 0.0, "warmup_steps": 100})
        config.checkpoint.update({"every": 100, "keep_every": 100})
        if args.root:
            for name in args.sets.split("+"):
                # MMVP's questions are in a separate file
                has_pair = args.question and name.startswith("mmvp")
                pair_options = {"pair_question": True} if has_pair else {}
                config.evals[name] = {"root": args.root, **pair_options}
    return config


def _use_model(config: ConfigDict, args: SimpleNamespace) -> None:
    """Model, images and tokenizer."""
    path = args.tokenizer or args.weights
    if args.model == "qwen3_vl":
        prefix = pretrained.QWEN3_VL["prefix"].format(pretrained.QWEN3_VL["instruction"])
        pretrained.use_qwen3_vl(config, path, args.size, prefix)
        return
    config.model.update({"name": "vlm2vec", "variant": "L/14-336", "text_tower": False})
    config.model.vocab_size = args.vocab
    # the last block's output and the projection are never read
    config.model.image = ConfigDict({"depth": 23, "projection": None})
    head = {"decoder": "vicuna_7b", "stage": "raw", "prefix": (START,)}
    # only adapters of the decoder are trained
    config.model.head = ConfigDict(head | {"param_dtype": "compute"})
    config.input.image_size, config.input.crop = 336, "none"
    config.text.tokenizer, config.text.context_length = "hf", 256
    # Llama 2 has no padding token
    special = {"eos_token": "</s>", "pad_token": "<unk>", "has_start": False}
    config.text.tokenizer_options = ConfigDict({"path": path, **special})
