"""The command `vlc-jax`, also `python -m vlc_jax`: a run, or one of the commands below.

vlc-jax --config scenes/clip --workdir runs/clip
vlc-jax report runs/clip
"""

import difflib
import runpy
import sys

import vlc_jax
from vlc_jax.run import startup

COMMANDS = {  # name -> module, what it does
    "sweep": ("vlc_jax.tools.sweep", "runs of a grid of settings and seeds, and their comparison"),
    "report": ("vlc_jax.report", "page and plots of a run, or a comparison of several"),
    "score": ("vlc_jax.tools.score", "scores of images and texts by a model"),
    "calibrate": ("vlc_jax.tools.calibrate", "probabilities from scores, by labelled pairs"),
    "generate": ("vlc_jax.tools.generate", "captions and answers of a generative model"),
    "embed": ("vlc_jax.tools.embed", "embeddings of images or texts, into a file"),
    "blind_pairs": ("vlc_jax.tools.blind_pairs", "images alike for CLIP and not for DINOv2"),
    "nearest": ("vlc_jax.tools.nearest", "hard images: the nearest by stored features"),
    "embed_text": ("vlc_jax.tools.embed_text", "text vectors to train on"),
    "cache_features": ("vlc_jax.tools.cache_features", "features of frozen towers to train on"),
    "export": ("vlc_jax.tools.export", "weights in a format of another library"),
    "scores": ("vlc_jax.tools.scores", "scores of every benchmark case, as Parquet"),
    "import_scores": ("vlc_jax.tools.import_scores", "scores of another program, as a workdir"),
    "mteb": ("vlc_jax.tools.mteb_results", "tasks of mteb, as a folder of its results"),
    "write_texts": ("vlc_jax.tools.write_texts", "answers of a language model to write_hard_texts"),
    "plausibility": ("vlc_jax.tools.plausibility", "how far a text-only model knows a set"),
    "launch": ("vlc_jax.tools.launch", "path of a file for Slurm, TPU pods, GKE or SkyPilot"),
    "check": ("vlc_jax.input_pipeline.commands.check", "image-text data before training"),
    "prepare": ("vlc_jax.input_pipeline.commands.prepare", "data as shards"),
    "composites": (
        "vlc_jax.input_pipeline.commands.composites",
        "pairs of images that differ in a relation, attribute or object (DCSM)",
    ),
    "leaks": ("vlc_jax.input_pipeline.commands.leaks", "training images that benchmarks hold"),
    "benchmarks": (
        "vlc_jax.input_pipeline.commands.benchmarks",
        "files that published benchmarks need",
    ),
    "hard_texts": (
        "vlc_jax.input_pipeline.commands.hard_texts",
        "hard negatives and positives of captions",
    ),
    "tag": ("vlc_jax.input_pipeline.commands.tag", "parts of speech of captions, into a file"),
    "write_hard_texts": (
        "vlc_jax.input_pipeline.commands.write_hard_texts",
        "hard texts of a language model, by batch files",
    ),
}
OF_ONE_CONFIG = "vlc_jax.tools.list_config"  # --list NAME


def cli() -> None:
    """Runs the command that the first word names, or training and evaluation."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    # before the imports of a run or command, which take seconds
    startup.install(is_run=word not in COMMANDS)
    if word in COMMANDS:
        sys.argv = [f"vlc-jax {word}", *sys.argv[2:]]
        runpy.run_module(COMMANDS[word][0], run_name="__main__", alter_sys=True)
        return
    if word == "--list" and len(sys.argv) > 2:
        sys.argv = ["vlc-jax --list", *sys.argv[2:]]
        runpy.run_module(OF_ONE_CONFIG, run_name="__main__", alter_sys=True)
        return
    if word == "--version":
        print(f"vlc_jax {vlc_jax.__version__}")
        return
    if word and not word.startswith("-"):
        near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.0)[0]
        known = ", ".join(COMMANDS)
        print(f"no command {word!r}; did you mean {near!r}? known: {known}", file=sys.stderr)
        sys.exit(2)
    from vlc_jax import main

    lines = [f"  vlc-jax {name}: {text}" for name, (_, text) in COMMANDS.items()]
    main.cli("\n".join(["Commands, each with a --help of its own:", *lines]))


if __name__ == "__main__":
    cli()
