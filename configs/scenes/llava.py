"""LLaVA in miniature: a small decoder over the tokens of a frozen CLIP, trained on captions, on
questions with short answers and on "does this figure show ...? please answer yes or no".

  python -m vlc_jax.main --config configs/scenes/llava.py --workdir runs/llava

As LLaVA's, its training has two stages: captions and questions with short answers (stage=1), then
mostly yes/no questions (stage=2). `--config.init_from=WORKDIR` names the run of stage 1, or with
stage=1 the CLIP of the tower; otherwise the run trains these first, in WORKDIR/pretrain.

Each benchmark is evaluated by several protocols: score (log probability of the caption), vqascore
(log probability of "yes" after the question about the caption), keywords (in its greedy answers
about places, colours and shapes) and m3id (M3ID decoding, with t from 0 and from 1, places only);
see configs/eval/llava.py.

Images show two objects; four captions in five state their relation, the others name both; all name
their colours. KINDS has the shares of texts (input_pipeline/scenes/conversations.py).

Arguments: select=patch, or pooled: the image's embedding alone, as LLaVA with [CLS] only; width=N,
depth=N, steps=N (else STEPS), batch=N; positions=0: no trained vector for each image token; and
the common ones of configs/common/heads.py but text_tower.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, heads, scenes
from vlc_jax.configs.eval import llava as evaluations

KINDS = {  # stage -> kind of texts -> share
    1: {"caption": 0.25, "question": 0.45, "presence": 0.15, "colours": 0.15},
    2: {"yes_no": 0.35, "object": 0.35, "caption": 0.1, "question": 0.1, "presence": 0.05,
        "colours": 0.05},
}  # fmt: skip
STEPS = {1: 600, 2: 400}
SETS = (
    "scenes_attribute_swap", "scenes_relation_swap", "scenes_whatsup", "scenes_negation",
    "scenes_held_relation_swap", "scenes_objects", "scenes_spatial",
)  # fmt: skip
PROTOCOLS = ("score", "vqascore", "keywords", "m3id")
SIZES = {"select": heads.SELECT, "width": 256, "depth": 2, "positions": 1}
OF_FIRST = (*SIZES, "base", "world", "split", "tower_pooling")  # arguments of the stage before
ARGUMENTS = {
    **heads.PLAIN_SCENES,
    **SIZES,
    "image_tower": heads.LOCK,
    "steps": 0,
    "hard_images": 0,
    "batch": 256,
    "stage": arguments.OneOf(2, 1),
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    args.steps = args.steps or STEPS[args.stage]
    config = heads.on_scenes(args, bool(args.hard_images))
    with config.unlocked():
        if args.stage == 2:
            first = {name: vars(args)[name] for name in OF_FIRST}
            config.pretrain = get_config({"stage": 1, **first})
        sizes = {size: vars(args)[size] for size in SIZES} | {"positions": bool(args.positions)}
        frozen = ("image",) if args.image_tower == "locked" else ()
        heads.use(config, "captioner", 1.0, frozen, **sizes, scores="answer")
        config.model.text_tower = False
        config.text.tokenizer, config.text.context_length = "scenes_conversation", 24
        config.text.lengths = (18, 20)  # the longest of stage 1 has 17 tokens, of stage 2 19
        config.text.tokenizer_options = ConfigDict({"world": args.world})
        config.batch_size = args.batch
        config.optimizer.learning_rate = 1.5e-3
        options = {"relation": 0.8, "single": 0.0, "place": 0.0}
        config.input.scenes.caption_options.update(options)
        config.input.scenes.world_options.counts = (0.0, 1.0, 0.0)
        config.input.scenes.conversations = tuple(KINDS[args.stage].items())
        config.input.scenes.count, config.input.scenes.captions = args.pairs, 1
        # by tokens, a caption would weigh four times as much as yes or no and its end token
        config.losses = ConfigDict({"caption": default.loss(weight=1.0, reduction="sample")})
        names = {"sets": "+".join(SETS), "protocols": "+".join(PROTOCOLS)}
        asked = SimpleNamespace(**names, root="", count=0, tie="strict")
        scene_sets = scenes.evaluations(args.split, world=args.world, more=("scenes_spatial",))
        config.evals = ConfigDict(evaluations.evaluations(asked, scene_sets))
    return config
