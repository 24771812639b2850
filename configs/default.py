"""The default config: every field with its unit or reason; the other configs are diffs of it.

A placeholder has a type and no value (None) until one is set. The command line changes any field:
  python -m vlc_jax.main --config configs/scenes/clip.py --config.steps=200 --workdir runs/short
"""

from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 0  # of initialisation, data order and dropout

    # How long: exactly one of the three is set.
    config.steps = 1000  # optimizer steps
    config.epochs = placeholder(float)  # passes over the training source
    config.examples = placeholder(int)  # image-text pairs; hard images do not count
    config.batch_size = 256  # image-text pairs per step, over all devices, with hard images

    # Mesh sizes; -1: the remaining devices. tensor: tensor parallelism of a captioner's decoder,
    # whose devices read the same rows of a batch.
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "tensor": 1})
    config.input = ConfigDict(_input())
    config.text = ConfigDict(_text())
    config.model = ConfigDict(_model())
    # Where the parameters start: a file or folder of OpenAI, open_clip, Hugging Face or big_vision
    # weights, or the workdir of a run; None: initialised from the seed.
    config.init_from = placeholder(str)
    # Parameters of the head, beside the towers at init_from: a .pt file of DCSM's authors, or of a
    # captioner's decoder the folder of a language model. None: the head of init_from, or a new one.
    config.head_from = placeholder(str)
    # Config of a pretraining run to do first (in WORKDIR/pretrain) and to start from, if init_from
    # is not set. Empty: none.
    config.pretrain = ConfigDict()
    # Parameters to freeze: "image" and "text" for whole towers, which come from init_from, or
    # regexes of whole paths ("logit_scale"). They are not in the checkpoints.
    config.frozen = ()
    config.lora = ConfigDict(_lora())
    # WiSE-FT, in --mode eval: evaluates the parameters (1 - alpha) other + alpha * this run's, for
    # every alpha; other: weights as in init_from. None: evaluates this run alone.
    config.interpolate = ConfigDict(
        {"other": placeholder(str), "alpha": (0.0, 0.25, 0.5, 0.75, 1.0)}
    )
    # name -> weight and options. The names are keys of vlc_jax.losses.LOSSES, or any with an option
    # `loss`, such a key or your module.function. implementation: dense | chunked (`chunk` images at
    # a time) | ring (blocks of texts travel between devices). Others: vlc_jax.losses.total.
    config.losses = ConfigDict({"infonce": loss(weight=1.0)})
    # Split the batch into this many independent contrastive sub-batches without shared negatives;
    # the loss is their mean, activation memory is one sub-batch's.
    config.sub_batches = 1
    # Rows of the batch, over all devices, that the towers encode at a time (GradCache): loss and
    # gradient of the whole batch with the activation memory of these rows, at the cost of a second
    # forward pass. None: all at once.
    config.microbatch = placeholder(int)
    config.optimizer = ConfigDict(_optimizer())

    config.log_every = 10  # steps, between rows of metrics.jsonl
    config.checkpoint = ConfigDict(_checkpoint())
    # A run without a step for this many seconds and this many mean step times hangs: the stacks of
    # all threads are written to WORKDIR/logs and it exits with 31, so that a supervisor restarts
    # it. seconds=0: no watchdog, for a debugger. Compilations, saves and evaluations do not count.
    config.watchdog = ConfigDict({"seconds": 600.0, "steps": 50.0})
    # When and how to evaluate; the benchmarks are in `evals`.
    config.eval = ConfigDict(_evaluation())
    # Name -> options of a benchmark. The name is a key of READERS in input_pipeline/benchmarks; or
    # any, with such a key as the option "reader": {"flickr": {"reader": "retrieval", "path": ...}}.
    config.evals = ConfigDict()
    return config.lock()


def loss(weight: float, **options: Any) -> dict:
    """Options of a loss: the common ones, and its own (vlc_jax/losses)."""
    if not 0 <= weight < float("inf"):
        raise ValueError(f"the weight of a loss is a number from 0 on; got {weight}")
    return {
        "weight": weight,
        "implementation": "dense",
        "chunk": placeholder(int),
        # False negatives: pairs of the batch with equal captions or images. keep | mask
        "duplicates": "keep",
        **options,
    }


def hard_texts() -> dict:
    """Number and sources of hard negatives or hard positives per caption. Default: none."""
    return {
        "count": 0,  # per caption; 0: the batch has none
        # name -> share. "from_record": all texts of the records ("from_record:KIND": of a kind,
        # "from_record_in_order": the first ones); "other_captions": the record's others, as
        # positives; else a generator (a key of NEGATIVES or POSITIVES in
        # input_pipeline/hard_texts/), whose texts were made when the data were prepared, or are
        # made from the caption at each reading. A generator of share 0 is used by fallback
        # "replace" only.
        "generators": {"from_record": 1.0},
        # If a generator returns no text: skip (masked) | replace (another generator's text) | self
        # (the caption itself; positives only) | one_each (text k is of the k-th generator by the
        # alphabet, masked if it has none)
        "fallback": "skip",
        "options": {},  # generator -> its options
    }


def _checkpoint() -> dict:
    """Fields of config.checkpoint."""
    return {
        "every": 250,  # steps; the last step is always saved
        "keep_last": 2,  # checkpoints that stay on disk
        "keep_every": placeholder(int),  # steps; checkpoints of its multiples are never deleted
    }


def _evaluation() -> dict:
    """Fields of config.eval."""
    return {
        "every": 250,  # steps; the last step is always evaluated
        # Time limit of an evaluation before the last step: no further benchmark starts after it;
        # None: all are evaluated.
        "seconds": placeholder(float),
        # Images or texts per forward pass, over all devices. A CPU always takes 32 per device, so
        # that its float32 results are the same bits for any value here.
        "batch_size": 256,
        # Folder that caches the pooled features of images and texts (2 to 4 KB each) for further
        # evaluations of the same weights, also by other runs. None: WORKDIR/features, of an
        # evaluation that was stopped, until it is finished (at most 4 GB per tower); "": no files.
        "cache": placeholder(str),
        "examples": 6,  # cases per benchmark that the report shows with their images
    }


def _input() -> dict:
    return {
        "source": "scenes",  # a key of SOURCES in input_pipeline/sources/, or your module.Class
        # Options of the source: the arguments of its class, listed by `vlc-jax --list`. One of
        # them: --config.input.source_options.path=x; all, in place of the config's:
        # --config.input.source_options="{'path': 'x'}"
        "source_options": {},
        # Options of the source "scenes"; hard texts of scenes take its world, too.
        "scenes": _scenes(),
        "image_size": 40,  # pixels, square; of naflex and native, that with the most patches
        # centre, as Hugging Face cuts it | centre_torchvision, as OpenAI's code and open_clip:
        # at some sizes a pixel further | centre_margin: the centre of a side 8/7 as long, as
        # ImageNet's 224 of 256 pixels (DINOv2) | in training: random_resized;
        # random_resized_fast, JPEG decoded at 1/2, 1/4 or 1/8; perturbed, DCSM's perspective,
        # rotation and noise, then centre | none: squashed | pad: to a square of CLIP's mean
        # colour, as LLaVA-1.5 | naflex: whole, as SigLIP 2 NaFlex | native: by Qwen3-VL's rule
        "crop": "none",
        # centre | centre_torchvision | centre_margin | none | pad | naflex | native; None: as
        # crop, but centre for random ones
        "eval_crop": placeholder(str),
        "crop_scale": (0.9, 1.0),  # range of the area of random_resized
        # torchvision's ColorJitter, in training: brightness factors of 1 +- brightness, hue
        # shifts of +- hue (share of the colour circle, at most .5).
        "jitter": {"brightness": 0.0, "hue": 0.0},
        "interpolation": "bicubic",  # bilinear; both antialiased, as Pillow's
        "normalisation": "clip",  # clip | siglip | imagenet
        # Share of captions that are replaced, at each reading, by one of their noun phrases in
        # a template ("a picture of {}."); tagger: input_pipeline/hard_texts/taggers.py.
        "noun_phrases": {"share": 0.0, "tagger": "spacy:en_core_web_sm"},
        # Question about every image, for a head that reads one (vlm2vec); {} stands for the
        # question of the record or case. "": none.
        "question": "",
        "text_only_question": "",  # the same, for training records without an image
        # Hard images per record, each a further row of the batch.
        "hard_images": 0,
        # Hard negatives per caption; of_positives: also hard negatives of each hard positive,
        # after the caption's (DAC).
        "negatives": hard_texts() | {"of_positives": 0},
        "positives": hard_texts(),  # hard positives per caption
        "max_bad_share": 0.01,  # of records; more unusable ones end the run (exit 3)
        "preview": 256,  # records checked before anything is compiled
        "loader": {
            "workers": 0,  # processes, restarted once if they die; 0: threads only
            "threads": 2,
        },
    }


def _scenes() -> dict:
    """Options of the source "scenes"."""
    return {
        "world": "scenes-mini",  # named world of input_pipeline/scenes/world.py
        "count": 64_000,  # distinct training scenes
        "captions": 4,  # per picture; one of them is drawn at each reading
        "world_options": {},  # fields of World in the same file -> other values
        "caption_options": {},  # fields of Style in grammar.py beside it -> other values
        # ((kind, share), ...): each picture gets a hard image, with two objects swapped
        # ("relation") or two colours ("attribute"), with an object that the caption denies
        # ("negation"), or without one that it names ("denial"); `captions` must then be 1.
        "hard_images": (),
        # ((kind, share), ...) of texts: "caption", "question", "yes_no", "object",
        # "presence", "colours"; for the tokenizer scenes_conversation.
        "conversations": (),
    }


def _text() -> dict:
    return {
        "tokenizer": "scenes",  # a key of TOKENIZERS in input_pipeline/tokenizers/, or module.Class
        # Options of the tokenizer, as `source_options`. A path is a file, a folder, or the
        # workdir of a run with this kind of tokenizer.
        "tokenizer_options": {},
        "context_length": 20,  # tokens, with start and end of text
        # Shorter lengths: a training batch is padded to the first length that holds its longest
        # text, else to context_length. A step is compiled for each; the loss is the same.
        "lengths": (),
        # DCSM's functional words; position "token": at the token itself | "word": at the token
        # with the number of the word, as its authors do
        "functional_words": {"words": (), "position": "token"},
        "scenes": {"world": "scenes-mini"},
    }


def _model() -> dict:
    return {
        # Head that scores the features: a key of vlc_jax.models.HEADS, or module.Class. init_from:
        # model, texts and preprocessing are read from the weights at config.init_from and written
        # to config.json; fields that differ from this file keep their values. init_from:NAME: the
        # same, and their head must be NAME.
        "name": "clip",
        "variant": "mini",  # a key of vlc_jax.models.variants.VARIANTS
        "vocab_size": placeholder(int),  # rows of the text embedding; None: the variant's
        "activation": placeholder(str),  # quick_gelu | gelu | gelu_tanh; None: the variant's
        "epsilon": placeholder(float),  # of layer norms; None: the variant's
        # Of matrix products: float32 | bfloat16 | float16 | auto: bfloat16 on accelerators,
        # float32 on a CPU. Parameters, norms, softmax, scores and losses are always float32.
        "dtype": "auto",
        # Activations of each transformer block that the backward pass recomputes, to save
        # memory: none | minimal (all but matrix products) | dots (all but dense layers) | block
        # (all) | offload (as dots; saved activations lie in pinned host memory).
        "remat": "none",
        # Scan over the blocks of a tower: compiles several times faster, at the cost of a copy of
        # the tower's parameters; checkpoints and results are the same.
        "scan_layers": False,
        # xla | cudnn (NVIDIA GPUs, bfloat16 or float16) | auto: cudnn where a trial before the
        # run works and agrees with XLA; the log has the choice and its reason.
        "attention": "auto",
        # linear; None: the variant's (1/0.07, SigLIP 10)
        "logit_scale_init": placeholder(float),
        # linear; clamped to [1, this] after each update as CLIP does; None: no clamp
        "logit_scale_max": 100.0,
        "logit_bias_init": placeholder(float),  # None: the variant's (CLIP has no bias)
        # Overrides of the variant's fields of the towers and of the head (vlc_jax.models).
        "image": {},
        "text": {},
        "head": {},
        # False: texts have no tower, the head reads their token ids (captioner, vlm2vec).
        "text_tower": True,
    }


def _lora() -> dict:
    return {
        # Regex of the paths of matrices with an adapter, such as
        # ".*/attention/(query|value)/kernel" (all: vlc_jax/models/lora.py); only adapters are
        # trained and saved. "": no LoRA.
        "targets": "",
        "rank": 8,
        "alpha": 8.0,  # adapters are scaled by alpha / rank
        # Dropout rate of an adapter's inputs. Above 0 adapters are computed beside their
        # matrices, x W + (dropout(x) A) B; at 0 they are added to them.
        "dropout": 0.0,
        "dora": False,  # also train the norm of each column (DoRA)
        "initialisation": "uniform",  # of factor A: uniform | gaussian
        # Of factor B: zeros | xavier (of both factors of query_key_value, as SVLC's code, which
        # changes the model before the first step)
        "b_initialisation": "zeros",
        "full": "",  # regex of further parameters to train, such as "logit_scale"
    }


def _optimizer() -> dict:
    return {
        "learning_rate": 1e-3,  # peak
        "schedule": "cosine",  # cosine | linear, both to 0 | constant
        "warmup_steps": 100,
        "weight_decay": 0.1,  # decoupled, on matrices only
        "decay_exclude": "",  # regex of further parameter paths without decay
        "b1": 0.9,
        "b2": 0.98,
        "eps": 1e-6,
        # Of Adam's first moment: float32 | bfloat16: 2 bytes less per parameter
        "mu_dtype": "float32",
        "clip_norm": 1.0,  # of the global gradient; 0 or None: no clipping
        # (factor, steps): a step whose gradient norm is above factor times the median of the
        # last 100 steps changes no parameters; after so many in a row the run ends (exit 10).
        # (): no guard
        "spike_guard": (),
        # (regex of the whole parameter path, factor on its learning rate); first match wins
        "learning_rate_multipliers": (),
    }
