"""DCSM (dense cosine similarity maps): a small CNN scores the patch x token map of a frozen CLIP.

  python -m vlc_jax.main --config configs/dcsm.py --workdir runs/dcsm
  python -m vlc_jax.main --config configs/dcsm.py:mode=authors --workdir runs/dcsm_authors
  python -m vlc_jax.main --workdir runs/dcsm_pairs \\
    --config configs/dcsm.py:data=coco,weights=ViT-B-16.pt,tokenizer=FILE,path=pairs.jsonl
  python -m vlc_jax.main --workdir runs/dcsm_composites \\
    --config configs/dcsm.py:data=coco,weights=ViT-B-16.pt,tokenizer=FILE,pairs=FOLDER
  python -m vlc_jax.main --workdir runs/dcsm_coco --config \\
    configs/dcsm.py:data=coco,opposite=text,weights=ViT-B-16.pt,path=train_neg_clip.tsv

"Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025, arXiv:2503.08723; Raphoo/DCSM_Ideal_CLIP).

Blocks of 8 pairs and their 8 opposites, 27 epochs of Adam at 1e-3, dropout .1: the released
checkpoints. The 6 blocks of a step are its authors' three datasets in two wordings, each of one
dataset and wording; of other data than pairs=FOLDER, and of stored features, each is of all.
opposite=image: the picture of every opposite is the hard image of the record, with a caption of its
own; text: there is none, and 8 images meet 16 captions.

mode=authors is their code: a functional word's row stands one place too early, maps are
standardised over all that are scored together. mode=clean puts rows where the words are, and
standardises by averages, so that a score stands alone. Texts of data=coco have 30 tokens; padding
is CLIP's own 0 (theirs is the end token, not attended to: --config.text.tokenizer=hf with Hugging
Face's folder has the same ids). Images are augmented as theirs: perspective (.05), rotation by up
to 4 degrees, 4 % of noise (augment=false leaves it out; features of images have none).

On the scenes opposites are of three kinds: two objects in each other's place, two colours
exchanged, an object that one caption denies and the other picture has. The network tells words
apart by their column in the map, so captions are plain (phrases=plain), and a word is nearly always
in the same column.

Arguments: data=scenes|coco; opposite=image|text; functional=rows, or none (functional words have no
vectors of their own); blocks (per step: 1 on the scenes, else 6); image_tower,
text_tower=locked|unlocked. With data=scenes mode=clean|authors; layout=flat|grid;
standardise=running|tensor|per_pair (default: by mode); the arguments of configs/common/heads.py.
With data=coco mode=authors|clean; weights (OpenAI's ViT-B/16); tokenizer; path (a table whose
column hard_images holds ids and, for opposite=text, negatives holds captions; NegCLIP's TSV;
shards) or pairs (the folder of the authors' data, or of vlc-jax composites: the source dcsm, three
sets of equally many pairs in two wordings); augment; image_folder; validation; root, sets (as in
configs/clip_ft.py; default: those of the authors' code, in its wording); captions=given, or negclip
(of opposite=text: generated, with tagger); variant; size.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, heads, pretrained
from vlc_jax.configs.common.arguments import OneOf

LENGTH = 30  # tokens
OPTIONS = heads.TOWERS | {"opposite": OneOf("image", "text"), "functional": OneOf("rows", "none")}
SCENES = {
    **heads.PLAIN_SCENES,
    **OPTIONS,
    "steps": 10_000,
    "mode": OneOf("clean", "authors"),
    "layout": "flat",
    "standardise": "",
    "blocks": 1,
}
COCO = {
    **pretrained.FINETUNING,
    **OPTIONS,
    "sets": f"{pretrained.SPATIAL}+vg_attribution+clevr_bind+ncd_squares+negbench",
    "variant": "B/16",
    "size": 224,
    "mode": OneOf("authors", "clean"),
    "captions": OneOf("given", "negclip"),
    "tagger": "spacy:en_core_web_lg",
    "blocks": 6,
    "pairs": "",
    "augment": True,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    return _on_scenes(args) if args.data == "scenes" else _on_coco(args)


def _on_scenes(args: SimpleNamespace) -> ConfigDict:
    head = {"layout": args.layout}
    head |= {"standardise": args.standardise} if args.standardise else {}
    config = heads.on_scenes(args, hard_images=args.opposite == "image")
    with config.unlocked():
        heads.dcsm(config, args, **head)
        config.optimizer.learning_rate = 2e-3
        if args.opposite == "text":
            finetuning.use_negatives(config, scenes_swap=1.0)
    return config


def _on_coco(args: SimpleNamespace) -> ConfigDict:
    config = default.get_config()
    with config.unlocked():
        pretrained.use_clip(config, args, args.size)
        pretrained.evaluate(config, args, wording="dcsm")
        if args.path.endswith(".tsv"):
            pretrained.read(config, pretrained.source_of(args.path, args.image_folder, "negclip"))
        if args.pairs:
            if args.path:
                raise ValueError(f"pairs={args.pairs} is the data: leave out path={args.path}")
            source = {"source": "dcsm", "path": args.pairs}
            images = {"images": args.image_folder} if args.image_folder else {}
            pretrained.read(config, source, opposite=args.opposite, **images)
        if args.augment:
            pretrained.use_random_crops(config, "perturbed")
        config.text.context_length = LENGTH
        config.model.text.padding_mask = True  # as transformers, which the authors call
        heads.adam(config, rate=1e-3, epochs=27.0)
        heads.dcsm(config, args, dropout=0.1)
        if args.opposite == "image":
            config.input.hard_images = 1
            pretrained.use_columns(config, id_column="id", hard_images_column="hard_images")
        elif args.captions == "given":
            pretrained.use_texts(config.input.negatives, 1, "skip", {"from_record": 1.0})
            pretrained.use_columns(config, negatives_column="negatives")
        else:
            options = {"negclip": pretrained.AUTHORS | {"tagger": args.tagger}}
            pretrained.use_texts(config.input.negatives, 1, "skip", {"negclip": 1.0}, **options)
    return config
