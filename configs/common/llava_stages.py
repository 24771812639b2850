"""LLaVA-1.5 on its own files: model, prompts, data and optimizer of both stages."""

from types import SimpleNamespace

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, pretrained

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
)
VQASCORE = 'Does this figure show "{}"? Please answer yes or no.'  # as prompts.VQASCORE
_LLAMA_3 = "<|start_header_id|>{}<|end_header_id|>\n\n"
_LLAMA_3_TURN = f"{{question}}<|eot_id|>{_LLAMA_3.format('assistant')}"
_PHI_3_TURN = "{question}<|end|>\n<|assistant|>\n"
# Name of a language model (vlc_jax/models/lm_variants.py) -> rows of its embedding, text before the
# image, and options of the tokenizer `conversation`; Vicuna's template is its default.
DECODERS = {
    "vicuna_7b": (
        32_000,
        f"{SYSTEM} USER: ",
        # Llama 2 has no padding token, and LLaVA pads with this one
        {"eos_token": "</s>", "pad_token": "<unk>"},
    ),
    "llama3_8b": (
        128_256,
        f"{_LLAMA_3.format('system')}{SYSTEM}<|eot_id|>{_LLAMA_3.format('user')}",
        {
            "eos_token": "<|eot_id|>",
            "pad_token": "<|end_of_text|>",
            "template": f"\n{_LLAMA_3_TURN}",
            "later": f"{_LLAMA_3.format('user')}{_LLAMA_3_TURN}",
        },
    ),
    "phi3_mini": (
        32_064,
        "<|system|>\nYou are a helpful AI assistant.<|end|>\n<|user|>\n",
        {
            "eos_token": "<|end|>",
            "pad_token": "<|endoftext|>",
            "template": f"\n{_PHI_3_TURN}",
            "later": f"\n<|user|>\n{_PHI_3_TURN}",
        },
    ),
}
IMAGE_TOKENS = {"patch": 576, "cls": 1, "cls_patch": 577}  # of ViT-L/14 at 336 pixels
LENGTH = 2048  # tokens, with the image's
ARGUMENTS = {
    **pretrained.ARGUMENTS,
    "decoder": arguments.OneOf(*DECODERS),
    "select": arguments.OneOf(*IMAGE_TOKENS),
    "vocab": 0,
}


def make(args: SimpleNamespace) -> ConfigDict:
    """The config of both stages: CLIP's tower without its last block, projector and decoder."""
    rows, before_image, options = DECODERS[args.decoder]
    config = default.get_config()
    with config.unlocked():
        config.init_from = args.weights or None
        pretrained.read_llava(config, args)
        config.input.image_size, config.input.crop = 336, "pad"
        config.text.tokenizer = "conversation"
        config.text.context_length = LENGTH - IMAGE_TOKENS[args.select]
        config.text.lengths = (128, 512)  # of captions, and of short conversations
        config.text.tokenizer_options = ConfigDict({"path": args.tokenizer, **options})
        config.model.update({"name": "captioner", "variant": "L/14-336", "text_tower": False})
        config.model.update({"remat": "block", "logit_scale_init": 1.0})
        config.model.vocab_size = args.vocab or rows
        config.model.image = ConfigDict({"depth": 23, "projection": None})
        config.model.head = ConfigDict(
            {
                "decoder": args.decoder,
                "param_dtype": "compute",
                "select": args.select,
                "stage": "raw",
                "scores": "answer",
                "prefix": before_image,
            }
        )
        config.losses = ConfigDict({"caption": default.loss(weight=1.0, reduction="token")})
        config.batch_size, config.steps, config.epochs = args.batch, placeholder(int), 1.0
        adam = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}  # of torch and transformers
        config.optimizer.update({"weight_decay": 0.0, "clip_norm": 1.0, **adam})
        config.checkpoint.every = 500
    return config
