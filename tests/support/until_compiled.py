"""A run that ends, with code 0, where its step would be compiled: its config is resolved, its data
read, its first state made or taken from where it starts, its step traced with the first batch.

  python -m tests.support.until_compiled --config FILE --workdir DIR [flags]
"""

import sys

import jax

from vlc_jax import main
from vlc_jax.setup import command_line
from vlc_jax.train import compiled_step
from vlc_jax.train import step as train_step


def end(setup: train_step.Setup, *arrays: object) -> None:
    """In place of compiled_step.compile_step, whose arguments these are."""
    with jax.set_mesh(setup.mesh):
        jax.eval_shape(train_step.make_step(setup), *arrays)
    sys.exit(0)


if __name__ == "__main__":
    compiled_step.compile_step = end
    command_line.parse_flags(["until_compiled", *sys.argv[1:]])
    main.main(["until_compiled"])
