"""Every field of a run with its unit or its reason; all other configs are short diffs of this one.

A placeholder has no value (None) until one is given. The command line changes any field:
  python -m vlc_jax.main --config configs/scenes/clip.py --config.steps=200 --workdir runs/short
"""

from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0  # of initialisation and data order
    config.platform = "any"  # any | cpu | gpu | tpu: stop when JAX finds another one

    # How long: exactly one of the three is set.
    config.steps = 1000  # optimizer steps
    config.epochs = placeholder(float)  # passes over the training source
    config.examples = placeholder(int)  # image-text pairs; hard images do not count
    config.batch_size = 256  # pairs per step, over all devices, those of hard images included

    config.mesh = ConfigDict({"data": -1, "fsdp": 1})  # devices per axis; -1: all that are left
    config.input = _input()
    config.text = _text()
    config.model = _model()
    # Where the parameters start: a file or folder of OpenAI, open_clip, Hugging Face or big_vision
    # weights, or the workdir of a run; None: initialised from the seed.
    config.init_from = placeholder(str)
    # The head of DCSM as its authors save it (a .pt file), for the towers at init_from; None: that
    # of init_from, or a new one.
    config.head_from = placeholder(str)
    # A whole config: that run comes first, in the folder `pretrain` of the workdir, and this one
    # starts from it. Empty, or init_from given: nothing comes first.
    config.pretrain = ConfigDict()
    # Towers that stay as they are at init_from: of image, text. They are not in the checkpoints.
    config.frozen = ()
    config.lora = _lora()
    # --mode eval judges (1 - alpha) other + alpha this run (WiSE-FT); other: as init_from.
    config.interpolate = ConfigDict(
        {"other": placeholder(str), "alpha": (0.0, 0.25, 0.5, 0.75, 1.0)}
    )
    # name -> weight and options; the names are the keys of vlc_jax.losses.LOSSES. implementation:
    # dense | chunked (`chunk` images at a time) | ring (blocks of texts travel between devices).
    config.losses = ConfigDict({"infonce": loss(weight=1.0)})
    # Equal parts of the batch that do not see one another: the loss is the mean of theirs, and
    # memory that of one.
    config.blocks = 1
    config.logit_scale_max = 100.0  # clamped after each update as CLIP does; None: no clamp
    config.optimizer = _optimizer()

    config.log_every = 10  # steps between rows of metrics.jsonl
    config.checkpoint = ConfigDict(
        {
            "every": 250,  # steps; the last step is always saved
            "keep_last": 2,  # newest steps that stay on disk
            "keep_every": placeholder(int),  # steps divisible by it stay for ever
        }
    )
    config.eval = ConfigDict(
        {
            "every": 250,  # steps; the last step is always evaluated
            "batch_size": 256,  # images or texts per forward pass, over all devices
            "examples": 6,  # cases per benchmark whose images are kept for the report
        }
    )
    # benchmark -> options of its reader; the names are the keys of vlc_jax.evaluators.EVALUATIONS.
    config.evals = ConfigDict()
    return config.lock()


def loss(weight: float, **options: Any) -> dict:
    """The options every loss has, and further ones that some have (vlc_jax/losses)."""
    if not 0 <= weight < float("inf"):
        raise ValueError(f"the weight of a loss is a number from 0 on; got {weight}")
    return {
        "weight": weight,
        "implementation": "dense",
        "chunk": placeholder(int),
        # Pairs of the batch that are no true negatives, such as two equal captions: keep | mask.
        "duplicates": "keep",
        **options,
    }


def hard_texts() -> dict:
    """Hard negatives or hard positives per caption: their number and generators; none."""
    return {
        "count": 0,  # per caption; 0: the batch has none
        # name -> share. "from_record": all texts that the records hold; else a generator (a key of
        # NEGATIVES or POSITIVES in input_pipeline/hard_texts/): the texts that it made when the
        # data were prepared, or makes of the caption at each reading. A generator of share 0 is
        # used by fallback "replace" only.
        "generators": {"from_record": 1.0},
        # For a text that its generator cannot give: skip (masked) | replace (by that of another
        # generator) | self (the caption itself, of positives)
        "fallback": "skip",
        "options": {},  # generator -> its options
    }


def _input() -> ConfigDict:
    return ConfigDict(
        {
            "source": "scenes",  # which of the following is read
            "scenes": {
                "world": "scenes-mini",  # named world of input_pipeline/scenes/world.py
                "count": 64_000,  # different training scenes
                "captions": 4,  # per picture; one of them is drawn at each reading
                "world_options": {},  # fields of World in the same file -> other values
                "caption_options": {},  # fields of Style in grammar.py beside it -> other values
                # ((kind, share), ...): each picture gets a hard image, in which two objects changed
                # places ("relation") or colours ("attribute"), or one became another, of which the
                # caption says that there is none ("negation"); captions is then 1.
                "hard_images": (),
            },
            "records": {
                "path": "",  # .jsonl, .tsv, .csv or COCO captions .json
                "image_folder": placeholder(str),  # None: the folder of the table
                "image_column": "image",
                "caption_column": "caption",
                "id_column": placeholder(str),  # None: image name and row number
                "negatives_column": placeholder(str),  # hard negative captions
                "positives_column": placeholder(str),  # hard positive captions
                "negative_kinds_column": placeholder(str),  # what each of them is
                "positive_kinds_column": placeholder(str),
                "hard_images_column": placeholder(str),  # ids of records with confusable images
                "group_column": placeholder(str),  # any value to split results by
                "split_column": placeholder(str),  # rows whose value is the split; None: holdout
                "holdout": 0.0,  # share of images, chosen by a hash of their names, to validate on
            },
            "tfds": {  # a dataset prepared as array_record
                "name": placeholder(str),  # "coco_captions/2014", with data_dir; or
                "data_dir": placeholder(str),
                "directory": placeholder(str),  # the folder of one prepared version
                "image": "image",  # names of features
                "caption": placeholder(str),
                "label": placeholder(str),  # a class label, captioned by templates
            },
            # Datasets by name, as published (docs/data.md). `images` is the folder
            # in which the image names of `annotations` start.
            "coco": {
                "annotations": "",  # dataset_coco.json, captions_train2017.json, ...
                "images": "",
                # What training reads of dataset_coco.json; of captions_*.json it is "train".
                "train_split": "train+restval",
                # kind -> a file with a line for every annotation of captions_*.json
                "negatives": {"crepe_replace": placeholder(str), "crepe_swap": placeholder(str)},
                "positives": {"replace": placeholder(str), "swap": placeholder(str)},
            },
            "crepe": {  # a .csv of CREPE's form; images: of Visual Genome
                "annotations": "",
                "images": "",
                "negatives": "hard_negs",  # the column
            },
            "sugarcrepe": {"annotations": "", "images": ""},  # a .json of SugarCrepe's form
            "flickr30k": {"annotations": "", "images": ""},  # dataset_flickr30k.json
            "negclip": {"annotations": "", "images": ""},  # train_neg_clip.tsv
            "cc3m": {"annotations": "", "images": ""},  # a table of image names and captions
            "llava": {  # several files or folders are joined by "+"
                "annotations": "",  # llava_instruct_150k.json, llava_v1_5_mix665k.json, ...
                "images": "",
                "answers": "first",  # the captions: first | each (one is drawn) | joined
            },
            "img2dataset": {"tars": ""},  # folder of tars that img2dataset wrote
            "shards": {"path": ""},  # folder written by python -m input_pipeline.prepare
            "features": {"path": ""},  # one of python -m vlc_jax.tools.cache_features
            # A file of images that training leaves out of a source of annotations
            # (python -m input_pipeline.leaks writes one).
            "exclude": placeholder(str),
            "digits": {},  # scikit-learn's handwritten digits
            "image_size": 40,  # pixels, square
            "crop": "none",  # centre | random_resized (training only) | none: squashed to a square
            "eval_crop": placeholder(
                str
            ),  # centre | none; None: as crop, centre for random_resized
            "crop_scale": (0.9, 1.0),  # area range of random_resized
            # In training: pixels times 1 - brightness ... 1 + brightness, their hue turned by -hue
            # ... hue of the circle (at most .5).
            "jitter": {"brightness": 0.0, "hue": 0.0},
            "interpolation": "bicubic",  # bilinear; both antialiased, as Pillow's
            "normalisation": "clip",  # clip | siglip | imagenet
            # A share of captions becomes, at each reading, one of their noun phrases in a template
            # ("a picture of {}."); tagger: input_pipeline/hard_texts/taggers.py.
            "noun_phrases": {"share": 0.0, "tagger": "spacy:en_core_web_sm"},
            # Per record: confusable images, which are further rows of the batch.
            "hard_images": 0,
            # Hard negative captions of each example; of_positives: as many more of each of its hard
            # positives, behind those of the caption.
            "negatives": hard_texts() | {"of_positives": 0},
            "positives": hard_texts(),  # hard positive captions of each example
            "max_bad_share": 0.01,  # of the source; more unusable records end the run (exit 3)
            "preview": 256,  # records read and checked before anything is compiled
            "loader": {
                "workers": 0,  # processes; 0: threads only
                "threads": 2,
            },
        }
    )


def _text() -> ConfigDict:
    return ConfigDict(
        {
            "tokenizer": "scenes",  # which of the following is used
            "context_length": 20,  # tokens, the end-of-text token included
            # DCSM's functional words; position "token": at the token itself | "word": at the token
            # whose number is that of the word, as its authors do
            "functional_words": {"words": (), "position": "token"},
            "scenes": {"world": "scenes-mini"},
            "words": {"words": ()},  # word-level over this list
            "bytes": {},  # UTF-8 bytes: no vocabulary file, any language
            # Of the following, clean is what is done to a caption first: none | lower |
            # canonicalize (no punctuation, lower case) | clip, clip_canonicalize (repaired before);
            # tokens that end or pad a text and are None: as the files say.
            "hf": {  # any Hugging Face tokenizer.json
                "path": "",
                "clean": "none",
                "eos_token": placeholder(str),
                "pad_token": placeholder(str),
            },
            "sentencepiece": {  # a .model file
                "path": "",
                "clean": "none",
                "eos_token": placeholder(str),
                "pad_token": placeholder(str),
            },
            "clip": {
                # bpe_simple_vocab_16e6.txt.gz, tokenizer.json, merges.txt beside vocab.json, or
                # their folder; "": of an installed open_clip or clip
                "path": "",
                "sha256": placeholder(str),  # of the merges, if they are not OpenAI's
            },
            "siglip": {  # tokenizer.json, a .model file or their folder; values of SigLIP 1
                "path": "",
                "clean": "canonicalize",
                "eos_token": "</s>",
                "pad_token": "</s>",
            },
            # No tokens: vectors that a sentence encoder gave, X.npy or X.safetensors with the texts
            # beside it (python -m vlc_jax.tools.embed_text). config.model.text then has the fields
            # of vlc_jax/models/text_vectors.py.
            "vectors": {"path": ""},
        }
    )


def _model() -> ConfigDict:
    return ConfigDict(
        {
            "name": "clip",  # a key of vlc_jax.models.HEADS: what scores the towers' features
            "variant": "mini",  # a key of vlc_jax.models.variants.VARIANTS
            "vocab_size": placeholder(int),  # rows of the text embedding; None: the variant's
            "activation": placeholder(str),  # quick_gelu | gelu | gelu_tanh; None: the variant's
            "epsilon": placeholder(float),  # of layer norms; None: the variant's
            "dtype": "float32",  # of matrix products; bfloat16 on accelerators
            "remat": False,  # recompute each block in the backward pass: less memory, more time
            "logit_scale_init": placeholder(
                float
            ),  # linear; None: the variant's (1/0.07, SigLIP 10)
            "logit_bias_init": placeholder(float),  # None: the variant's (CLIP has no bias)
            # Fields of the towers and of the head (vlc_jax.models) that shall differ from those of
            # the variant.
            "image": {},
            "text": {},
            "head": {},
        }
    )


def _lora() -> ConfigDict:
    return ConfigDict(
        {
            # Regex of whole paths of matrices that get an adapter, such as
            # ".*/attention/(query|value)/kernel" (all: vlc_jax/models/lora.py); then only adapters
            # are trained and saved. "": all parameters are trained.
            "targets": "",
            "rank": 8,
            "alpha": 8.0,  # what an adapter adds is multiplied by alpha / rank
            "dora": False,  # also train the length of each column (DoRA)
            "initialisation": "uniform",  # of the first factor; uniform | gaussian
            # of the second one; zeros | xavier: both factors of query_key_value are drawn, as SVLC
            # does, which changes the model from the start
            "b_initialisation": "zeros",
            "full": "",  # regex of parameters trained beside the adapters, such as "logit_scale"
        }
    )


def _optimizer() -> ConfigDict:
    return ConfigDict(
        {
            "learning_rate": 1e-3,  # peak
            "schedule": "cosine",  # cosine | linear | rsqrt | constant
            "warmup_steps": 100,
            "end_learning_rate": 0.0,  # of cosine and linear
            "timescale": 10_000,  # steps, of rsqrt
            "weight_decay": 0.1,  # decoupled, on matrices only
            "decay_exclude": "",  # regex of further parameter paths without decay
            "b1": 0.9,
            "b2": 0.98,
            "eps": 1e-6,
            "clip_norm": 1.0,  # of the global gradient; None: no clipping
            # (regex of the whole parameter path, learning-rate factor); first match wins, 0 freezes
            "multipliers": (),
        }
    )
