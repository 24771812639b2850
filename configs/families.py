"""What configs for pretrained weights share: what belongs to the weights, and the user's table."""

from types import SimpleNamespace

from ml_collections import ConfigDict

ARGUMENTS = {"weights": "", "tokenizer": "", "path": "", "image_folder": ""}


def use_clip(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """OpenAI's and open_clip's CLIP; tokenizer: bpe_simple_vocab_16e6.txt.gz or tokenizer.json.

    OpenAI's weights and those open_clip calls "-quickgelu" need activation quick_gelu, the other
    ones of open_clip gelu: the variants have OpenAI's. EVA02-CLIP's come with its variants.
    """
    _use(config, args, image_size, context_length=77)
    config.input.normalisation = "clip"
    config.input.crop = "centre"
    config.text.tokenizer = "clip" if args.tokenizer.endswith(".gz") else "hf"
    config.text[config.text.tokenizer].path = args.tokenizer


def use_siglip(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """SigLIP and, with its own tokenizer and vocabulary, SigLIP 2 of fixed resolution.

    tokenizer: SentencePiece's .model or tokenizer.json. Texts are padded to 64 tokens, always.
    """
    _use(config, args, image_size, context_length=64)
    config.input.normalisation = "siglip"
    config.input.crop = "none"
    config.text.tokenizer = "sentencepiece" if args.tokenizer.endswith(".model") else "hf"
    config.text[config.text.tokenizer].path = args.tokenizer
    config.logit_scale_max = None  # published scales are about 117


def _use(config: ConfigDict, args: SimpleNamespace, image_size: int, context_length: int) -> None:
    config.weights.path = args.weights or None
    config.model.variant = args.variant
    config.input.image_size = image_size
    config.text.context_length = context_length
    config.input.source = "records"
    config.input.records.path = args.path
    config.input.records.image_folder = args.image_folder or None


def five_epochs(config: ConfigDict, args: SimpleNamespace) -> None:
    """How long the papers finetune, with 50 steps of warmup; retrieval on a table, if given."""
    config.steps, config.epochs = None, 5.0
    config.batch_size = args.batch
    config.optimizer.warmup_steps = 50
    config.checkpoint.every = 500
    config.eval.every = 500
    if args.validation:
        options = {"split": "all", "path": args.validation}
        config.evals = ConfigDict({"retrieval": options})
