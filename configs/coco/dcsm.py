"""DCSM (dense cosine similarity maps): a small CNN scores the patch x token map of a frozen CLIP.

  python -m vlc_jax.main --workdir runs/dcsm \\
    --config configs/coco/dcsm.py:weights=ViT-B-16.pt,tokenizer=FILE,path=pairs.jsonl
  python -m vlc_jax.main --workdir runs/dcsm_coco \\
    --config configs/coco/dcsm.py:opposite=text,weights=ViT-B-16.pt,path=train_neg_clip.tsv

"Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025, arXiv:2503.08723; Raphoo/DCSM_Ideal_CLIP). Its
result tables are not at hand; what its notebooks print of single pictures is right against swapped
6.31 and 6.11 for two coloured shapes, above against below 3.36 and 2.57, with against without 4.15
and 2.03. Not yet run at full size here; an estimate: 27 times over 110,000 pairs and their
opposites take an hour of one A100, most of it the locked towers. A bound for variant=L/14-336 and
size=336, of the FLOPs that --mode plan counts: 75 TFLOPs a step, 48 ms on v5e:2x4 (whether it
fits is not known: the compiler of TPUs was killed after 20 minutes of two busy cores with 24 GB).

Blocks of 8 pairs and their 8 opposites, 27 epochs of Adam at 1e-3, dropout .1: the released
checkpoints. The 6 blocks of a step are its authors' three datasets in two wordings; theirs are of
one dataset each, ours of all. opposite=image: the picture of every opposite is the hard image of
the record, with a caption of its own; text: there is none, and 8 images meet 16 captions.

mode=authors is their code: a functional word's row stands one place too early, maps are
standardised over all that are scored together. mode=clean puts rows where the words are, and
standardises by averages, so that a score stands alone. In both the texts have 30 tokens; padding is
CLIP's own 0 (theirs is the end token, not attended to: --config.text.tokenizer=hf with Hugging
Face's folder has the same ids). Left out is their augmentation: perspective (.05), rotation by up
to 4 degrees, 4 % of noise.

Arguments: weights (OpenAI's ViT-B/16); tokenizer; path (a table whose column hard_images holds ids
and, for opposite=text, negatives holds captions; NegCLIP's TSV; shards); image_folder; validation;
mode=authors|clean; opposite=image|text; functional=rows, or none (functional words have no vectors
of their own); captions=given, or negclip (those of opposite=text, made on the fly, with tagger);
blocks; variant; size; image_tower, text_tower=locked|unlocked.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, heads, pretrained

LENGTH = 30  # tokens
ARGUMENTS = {
    **pretrained.ARGUMENTS,
    "validation": "",
    "variant": "B/16",
    "size": 224,
    "mode": "authors",
    "opposite": "image",
    "functional": "rows",
    "captions": "given",
    "tagger": "spacy:en_core_web_lg",
    "blocks": 6,
    **heads.TOWERS,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = heads.check(arguments.parse(argument, **ARGUMENTS))
    config = default.get_config()
    with config.unlocked():
        pretrained.use_clip(config, args, args.size)
        pretrained.validate(config, args)
        if args.path.endswith(".tsv"):
            pretrained.read(config, pretrained.source_of(args.path, args.image_folder, "negclip"))
        config.text.context_length = LENGTH
        config.model.text.padding_mask = True  # as transformers, which the authors call
        heads.adam(config, rate=1e-3, epochs=27.0)
        heads.dcsm(config, args, dropout=0.1)
        records = config.input.records  # a table of your own
        if args.opposite == "image":
            config.input.hard_images = 1
            records.id_column, records.hard_images_column = "id", "hard_images"
        elif args.captions == "given":
            pretrained.use_texts(config.input.negatives, 1, "skip", {"from_record": 1.0})
            records.negatives_column = "negatives"
        else:
            options = {"negclip": pretrained.AUTHORS | {"tagger": args.tagger}}
            pretrained.use_texts(config.input.negatives, 1, "skip", {"negclip": 1.0}, **options)
    return config
