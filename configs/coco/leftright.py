"""CLIP or SigLIP with left/right hard negatives: "on the left" replaced by "on the right".

  python -m vlc_jax.main --workdir runs/leftright \\
    --config configs/coco/leftright.py:weights=ViT-L-14-336px.pt,tokenizer=FILE,path=llava.json

Must reproduce that nothing changes ("On Erroneous Agreements of CLIP Image Embeddings", 2024,
table 5): What'sUp left / right, individual and pairs, A then B: CLIP 50.5 and 1.0, 50.5 and 1.0
(finetuned without negatives 50.5 and 1.9, 53.9 and 5.9; in print 2.0, which 103 pairs cannot give);
SigLIP 50.0 and 0.0, 50.0 and 0.0; with image_tower=unlocked SigLIP 50.0 and 3.9, 47.1 and 2.0
(table 9). The authors used 4 GPUs. Not yet run at full size here; an estimate: five times over 1.2
million images, two texts each, take 8 hours of one A100 at 30 % of its bfloat16 peak (SigLIP 11;
unlocked 20 and 24).

Batch, rate, decay, warmup and epochs are the paper's (appendix B). About one caption in a
hundred of the authors' data (LLaVA's LCS-558K and DataMix-665K) says left or right; the others have
no negative. Of a conversation one answer is drawn at each reading, as they do; answers=joined is
their captions for language models. configs/llava/clip_ft.py is the control without negatives.

Arguments: those of configs/coco/clip_ft.py, path being conversations of LLaVA (JSON files, several
joined by "+", and so image_folder), a table or shards; answers=each|first|joined (of JSON files);
family=clip|siglip; image_tower=locked|unlocked; negatives=leftright|none; size (pixels; 0: the
paper's).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import clip_ft
from vlc_jax.configs.common import arguments, pretrained

FAMILIES = {"clip": ("L/14-336", 336), "siglip": ("SigLIP-L/16-256", 384)}  # the paper's, pixels
LOSSES = {  # without negatives and with them
    "clip": {"none": "infonce", "leftright": "negclip"},
    "siglip": {"none": "sigmoid", "leftright": "sigmoid_negatives"},
}
ARGUMENTS = {
    **clip_ft.ARGUMENTS,
    "batch": 512,  # 128 on each of 4 GPUs
    "variant": "",
    "answers": "each",
    "family": "clip",
    "image_tower": "locked",
    "negatives": "leftright",
    "size": 0,
}
CHOICES = {
    "family": tuple(FAMILIES),
    "image_tower": ("locked", "unlocked"),
    "negatives": ("leftright", "none"),
}


def get_config(argument: str | None = None) -> ConfigDict:
    return make(arguments.parse(argument, **ARGUMENTS))


def check(args: SimpleNamespace) -> SimpleNamespace:
    """Returns the arguments. Raises ValueError for a value that is not among its choices."""
    for name, known in CHOICES.items():
        if getattr(args, name) not in known:
            raise ValueError(f"{name} is {' or '.join(known)}; got {getattr(args, name)!r}")
    return args


def loss(args: SimpleNamespace) -> str:
    """Its name: that of the family, with negatives or without."""
    return LOSSES[args.family][args.negatives]


def make(args: SimpleNamespace) -> ConfigDict:
    check(args)
    variant, size = FAMILIES[args.family]
    args.variant = args.variant or variant
    config = default.get_config()
    with config.unlocked():
        pretrained.FAMILIES[args.family](config, args, args.size or size)
        pretrained.five_epochs(config, args)
        if args.path.endswith(".json"):
            pretrained.read(config, pretrained.source_of(args.path, args.image_folder, "llava"))
            config.input.llava.answers = args.answers
        config.losses = ConfigDict({loss(args): default.loss(weight=1.0)})
        if args.negatives == "leftright":
            pretrained.use_left_right(config.input.negatives)
        config.model.remat = "block"
        config.optimizer.learning_rate = 5e-6
        config.optimizer.weight_decay = 0.0
        if args.image_tower == "locked":
            config.frozen = ("image",)
    return config
