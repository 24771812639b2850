"""LLaVA in miniature: a small decoder over the tokens of a frozen CLIP, trained on captions, on
questions with short answers and on "does this figure show ...? please answer yes or no".

  python -m vlc_jax.main --config configs/scenes/llava.py --workdir runs/llava

Its benchmarks are asked by several protocols, each a row of the results: score (log probability of
the caption), vqascore (of "yes" behind the question about the caption), keywords (what it writes,
greedily, asked where the objects stand, which has which colour, or which of two shapes there is)
and m3id (by M3ID, with t from 0 and from 1, about places alone); see configs/eval/llava.py.

Pictures are of two objects; four captions in five say where they stand, the others name both; all
say their colours. Of the texts, .3 are captions, .3 questions that a caption answers, .1 which of
two shapes there is, .1 which object has which colour, .2 of yes and no, with as many of one as of
the other (input_pipeline/scenes/conversations.py).

Arguments: select=patch, or pooled: the image's embedding alone, as LLaVA with [CLS] only; width=N,
depth=N, steps=N, batch=N; positions=0: no trained vector for each image token; and those of
configs/common/heads.py that all heads have but text_tower. `--config.init_from=WORKDIR` names the
CLIP of the tower; otherwise the run trains it first, in WORKDIR/pretrain.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from configs import default
from configs.common import heads, scenes
from configs.eval import llava

CONVERSATIONS = (
    *(("caption", 0.3), ("question", 0.3), ("yes_no", 0.2)),
    *(("presence", 0.1), ("colours", 0.1)),
)
SETS = (
    *("scenes_attribute_swap", "scenes_relation_swap", "scenes_whatsup", "scenes_negation"),
    *("scenes_held_attribute_swap", "scenes_held_relation_swap", "scenes_objects"),
    "scenes_spatial",
)
PROTOCOLS = ("score", "vqascore", "keywords", "m3id")


def get_config(argument: str | None = None) -> ConfigDict:
    own = {
        "image_tower": "locked",
        "select": "patch",
        "width": 128,
        "depth": 2,
        "positions": 1,
        "batch": 256,
    }
    fixed = {"steps": 800, "phrases": "plain", "hard_images": 0}
    args = heads.parse_scenes(argument, **own | fixed)
    config = heads.on_scenes(args)
    with config.unlocked():
        config.model.text_tower = False
        heads.use(
            *(config, args, "captioner", 1.0),
            select=args.select,
            width=args.width,
            depth=args.depth,
            positions=bool(args.positions),
            scores="answer",
        )
        config.text.tokenizer, config.text.context_length = "scenes_conversation", 24
        config.text.tokenizer_options = ConfigDict({"world": args.world})
        config.batch_size = args.batch
        said = {"relation": 0.8, "single": 0.0, "place": 0.0}
        config.input.scenes.caption_options.update(said)
        config.input.scenes.world_options.counts = (0.0, 1.0, 0.0)
        config.input.scenes.conversations = CONVERSATIONS
        config.input.scenes.count, config.input.scenes.captions = args.pairs, 1
        config.losses = ConfigDict({"caption": default.loss(weight=1.0)})
        config.optimizer.learning_rate = 2e-3
        asked = {"sets": "+".join(SETS), "protocols": "+".join(PROTOCOLS)}
        asked = SimpleNamespace(**asked, root="", count=0, tie="strict")
        of_scenes = scenes.evaluations(args.split, world=args.world, more=("scenes_spatial",))
        config.evals = ConfigDict(llava.evaluations(asked, of_scenes))
    return config
