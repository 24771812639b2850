"""SVLC (Doveh et al. 2023, "Teaching structured vision and language concepts"): CLIP's loss and
each image's caption against a hard negative, with one word replaced.

  python -m vlc_jax.main --config configs/svlc.py --workdir runs/svlc
  python -m vlc_jax.main --config configs/svlc.py:lora --workdir runs/svlc_lora
  python -m vlc_jax.main --workdir runs/svlc_coco --config \\
    configs/svlc.py:data=coco,weights=ViT-B-32.pt,path=cc3m/train.tsv,language_model=FOLDER

Arguments: data=scenes|coco; in_batch (the negatives are further texts for every image of the batch
as well: the authors' code does so on one GPU, but not on several); lora (trains only adapters of
rank 4, as the authors do; true with data=coco, false on the scenes, where 250 steps are few for
it). With data=scenes the arguments of configs/clip_ft.py. With data=coco the arguments of
configs/clip_ft.py, path being a table of CC3M or any other; negatives=both (a fair coin per
caption, as in the rows above), rule or fill_mask; all but rule need language_model=FOLDER (the
authors: distilroberta-base) and tagger=spacy:en_core_web_sm, theirs.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

SCENES = clip_ft.SCENES | {"in_batch": False, "lora": False}
RULES = {"both": ("rule", "fill_mask"), "rule": ("rule",), "fill_mask": ("fill_mask",)}
COCO = clip_ft.COCO | {
    "sets": "replace+swap",
    "batch": 128,  # the authors' per GPU, like all numbers here from README and code
    "negatives": arguments.OneOf(*RULES),
    "language_model": "",
    "tagger": "spacy:en_core_web_sm",
    "in_batch": False,
    "lora": True,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    return make(arguments.parse_data(argument, scenes=SCENES, coco=COCO))


def make(args: SimpleNamespace) -> ConfigDict:
    """The config for parsed arguments, which SVLC+Pos and DAC change."""
    config = clip_ft.make(args, table="cc3m")
    with config.unlocked():
        config.losses = ConfigDict(
            {
                "negclip" if args.in_batch else "infonce": default.loss(weight=1.0),
                "svlc_negative": default.loss(weight=1.0),
            }
        )
        if args.data == "scenes":
            finetuning.use_negatives(config, scenes_replace=1.0)
        else:
            _use_negatives(config, args)
            config.optimizer.warmup_steps = 10_000
            config.optimizer.learning_rate = 5e-6
            config.optimizer.weight_decay = 0.1
        if args.lora:
            use_lora(config)
    return config


def _use_negatives(config: ConfigDict, args: SimpleNamespace) -> None:
    """One negative per caption; a caption without one takes no part in the loss of negatives."""
    generators = {f"svlc_{name}": 1.0 for name in RULES[args.negatives]}
    options = {name: dict(pretrained.AUTHORS) for name in generators}
    if "svlc_fill_mask" in generators:
        if not args.language_model:
            raise ValueError(
                f"negatives={args.negatives}: a language model fills in words, say "
                "language_model=FOLDER, where transformers' save_pretrained has written one (the "
                "authors: distilroberta-base); or negatives=rule, which needs none and is not what "
                "the published rows are"
            )
        options["svlc_fill_mask"] |= {"model": args.language_model, "tagger": args.tagger}
    pretrained.use_texts(config.input.negatives, 1, "skip", generators, **options)


def use_lora(config: ConfigDict) -> None:
    """Adapters of rank 4 on every matrix of both towers; all else is frozen, the scale too."""
    config.lora.targets = (
        "image/patch_embedding/convolution/kernel"
        "|.*/attention/(query_key_value|out)/kernel|.*/mlp/(up|down)/kernel"
    )
    config.lora.rank = 4
    config.lora.alpha = 1.0
    config.lora.b_initialisation = "xavier"
