"""CLIP-FT (Yuksekgonul et al. 2023): CLIP finetuned with its own loss, the control of NegCLIP.

  python -m vlc_jax.main --config configs/clip_ft.py --workdir runs/clip_ft
  python -m vlc_jax.main --workdir runs/clip_ft_coco --config \\
    configs/clip_ft.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=train_neg_clip.tsv

Arguments: data=scenes (the default) with the arguments of configs/common/finetuning.py, or
data=coco (published weights and files) with weights (OpenAI's ViT-B/32); tokenizer
(bpe_simple_vocab_16e6.txt.gz or Hugging Face's; by default the file of an installed open_clip or
clip); path (NegCLIP's TSV, a table, COCO captions JSON, or a folder that vlc-jax prepare wrote);
image_folder; validation (a table or such a folder, for retrieval); root (a folder of published
sets, as vlc-jax benchmarks lists them, to evaluate at the end); sets (of it, joined by +; default:
those of the published numbers); batch; family (clip; clip_hf, MetaCLIP 2 and RoBERTa; pe;
openvision, also CLIPA), variant and size (pixels) of other weights.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, pretrained

SCENES = finetuning.ARGUMENTS
COCO = {
    **pretrained.FINETUNING,
    "sets": f"{pretrained.ARO}+{pretrained.RETRIEVAL}",
    "batch": 256,  # NegCLIP's README, like epochs, warmup and learning rate
    "family": arguments.OneOf(*pretrained.FAMILIES_OF_CLIP),
    "variant": "B/32",
    "size": 224,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    return make(arguments.parse_data(argument, scenes=SCENES, coco=COCO))


def make(args: SimpleNamespace, table: str = "negclip") -> ConfigDict:
    """table: the source that reads a .tsv file."""
    if args.data == "scenes":
        return finetuning.make(args)
    config = default.get_config()
    with config.unlocked():
        pretrained.FAMILIES[args.family](config, args, args.size)
        pretrained.five_epochs(config, args)
        if args.path.endswith(".tsv"):
            pretrained.read(config, pretrained.source_of(args.path, args.image_folder, table))
        pretrained.use_random_crops(config)
        config.optimizer.learning_rate = 1e-6  # {1e-5, 5e-6, 1e-6} were tried
        config.optimizer.weight_decay = 0.2  # open_clip's default, none is given
    return config
