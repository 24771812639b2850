"""X-VLM or BLIP finetuned with image-text contrast (ITC) and matching (ITM) with hard negatives.

  python -m vlc_jax.main --config configs/xvlm_ft.py --workdir runs/xvlm_scenes
  python -m vlc_jax.main --workdir runs/xvlm_ft --config \\
    configs/xvlm_ft.py:data=llava,weights=XVLM_16M.th,tokenizer=BERT,path=A.json+B.json,image_folder=A+B
  python -m vlc_jax.main --workdir runs/xvlm_ft_coco --config \\
    configs/xvlm_ft.py:data=coco,weights=XVLM_16M.th,tokenizer=BERT,path=captions.json

data=llava is the row "XVLM-16M + finetuning" of "On Erroneous Agreements of CLIP Image Embeddings"
(2024, table 11), by its appendix B.4: image tower frozen, rate 1e-5, 128 pairs, 5 epochs, a tenth
of the steps as warmup, decay .01, scores by ITM. It prints no more; all else is that of data=coco.

data=coco is X-VLM's own retrieval (zengyan-97/X-VLM, Retrieval_coco.yaml): AdamW at 3e-5 with decay
.01 and b2 .98, a tenth of the steps as warmup, then linear to 0; 20 pairs on each of 8 GPUs, 10
epochs of COCO's captions; 384 pixels, 40 tokens, a learned temperature, both losses with weight 1
(vlc_jax/losses/matching.py). The temperature is trained as its logarithm, at 1 / .07 of the rate:
the same relative steps at .07.

Not as theirs: no dropout (.1 in BERT) and no stochastic depth (.1 in the Swin Transformer); random
crops of half the area and more, without flips and RandAugment; captions keep their punctuation;
negatives are drawn from all pairs of the step, not from the 20 of a GPU; no decay of the
temperature and of the norm before the match. family=blip is X-VLM's recipe on BLIP's parts: BLIP's
own has momentum encoders, queues and targets of the momentum encoders, which are not here.

data=scenes, the default, is a small model of the embedded scenes: the image tower of a CLIP with
mean pooling, trained further, and a new BERT of four blocks, of which the last two (family=blip:
all) attend to the image. Rate, batch and captions are those of configs/clip_ft.py.

Arguments: data=scenes|llava|coco; family=xvlm|blip; with data=scenes those of configs/clip_ft.py
but pooling. Others: weights (the authors' checkpoint; of 224 pixels, too); tokenizer
(tokenizer.json of bert-base-uncased or its folder); path (LLaVA's conversations, JSON files joined
by "+", and so image_folder; COCO captions JSON; a table, or a folder that vlc-jax prepare wrote);
image_folder; validation (a table or such a folder, for retrieval by ITM); root, sets (as in
configs/clip_ft.py; default: those of the numbers above); batch; size (pixels); with data=llava
answers=each|first|joined (of JSON files).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, pretrained, scenes

FAMILY = arguments.OneOf("xvlm", "blip")
SCENES = finetuning.DATA | {"steps": 1000, "family": FAMILY}
COCO = {
    **pretrained.FINETUNING,
    "sets": pretrained.SPATIAL,
    "batch": 160,
    "size": 384,
    "family": FAMILY,
}
LLAVA = COCO | {"batch": 128, "answers": arguments.OneOf("each", "first", "joined")}
# Epochs, and steps of warmup: a tenth of those of 1,182,738 conversations and of 113,287 images. An
# epoch of COCO's images draws one of the five captions of each.
DURATION = {"llava": (5.0, 4_620), "coco": (50.0, 3_540)}
WINDOW = 32  # pixels of the Swin Transformer's last stage per token
# of the scenes, whose texts have 20 tokens
ENCODER = {"width": 96, "depth": 4, "heads": 4, "mlp_width": 384, "positions": 20}
BLIP_IMAGE = {"patch_bias": True, "pre_norm": False, "activation": "gelu", "epsilon": 1e-6}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, llava=LLAVA, coco=COCO)
    if args.data == "scenes":
        return _on_scenes(args)
    config = default.get_config()
    with config.unlocked():
        _use_model(config, args)
        if args.data == "llava" and args.path.endswith(".json"):
            pretrained.read_llava(config, args, answers=args.answers)
        else:
            pretrained.read(config, pretrained.source_of(args.path, args.image_folder))
        pretrained.evaluate(config, args)
        pretrained.use_random_crops(config)
        config.input.crop_scale = (0.5, 1.0)
        config.losses = _losses()
        config.batch_size, config.steps = args.batch, placeholder(int)
        config.epochs, config.optimizer.warmup_steps = DURATION[args.data]
        rate = 1e-5 if args.data == "llava" else 3e-5
        config.optimizer.update({"learning_rate": rate, "schedule": "linear", "eps": 1e-8})
        config.optimizer.update({"weight_decay": 0.01, "clip_norm": None})
        # the authors' rule: no decay of what has "bias" in its name
        config.optimizer.decay_exclude = ".*/position_bias"
        config.optimizer.learning_rate_multipliers = (("logit_scale", 1 / 0.07),)
        config.checkpoint.every = 500
        if args.data == "llava":
            config.frozen = ("image",)
    return config


def _losses() -> ConfigDict:
    return ConfigDict({name: default.loss(weight=1.0) for name in ("itc", "itm")})


def _on_scenes(args: SimpleNamespace) -> ConfigDict:
    config = finetuning.make(SimpleNamespace(**vars(args), pooling="mean"))
    with config.unlocked():
        config.model.update({"name": args.family, "text_tower": False})
        head = {"scores": "itm", "encoder": ENCODER, "projection": ENCODER["width"]}
        # the scenes' tokenizer has no [ENC]
        config.model.head = ConfigDict(head | ({"match_id": None} if args.family == "blip" else {}))
        config.losses = _losses()
        # every pair of retrieval costs a pass of BERT
        config.evals = ConfigDict(scenes.evaluations(args.split, candidates=100, world=args.world))
    return config


def _use_model(config: ConfigDict, args: SimpleNamespace) -> None:
    """The published model, as its weights would say it: plans need no file."""
    config.init_from = args.weights or None
    config.input.image_size, config.input.crop = args.size, "none"
    config.text.tokenizer = "hf"
    special = {"eos_token": "[SEP]", "pad_token": "[PAD]"}
    config.text.tokenizer_options = ConfigDict({"path": args.tokenizer, **special})
    config.model.update({"name": args.family, "text_tower": False, "remat": "block"})
    config.model.logit_scale_max = None  # the authors clamp in pretraining alone
    if args.family == "xvlm":
        config.text.context_length = 40
        config.model.update({"variant": "Swin-B/32", "vocab_size": 30_522})
        # one window in the last stage
        config.model.image = ConfigDict({"window": args.size // WINDOW, "projection": None})
        return
    config.text.context_length = 35
    config.model.update({"variant": "B/16", "vocab_size": 30_524})
    config.model.image = ConfigDict({**BLIP_IMAGE, "projection": None})
