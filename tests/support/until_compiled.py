"""A run that ends, with code 0, where its step would be compiled: its config is resolved, its data
read, its first state made or taken from where it starts.

  python -m tests.support.until_compiled --config FILE --workdir DIR [flags]
"""

import sys

from vlc_jax import main, train_step


def end(*_: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    train_step.compile_step = end
    main.parse_flags(["until_compiled", *sys.argv[1:]])
    main.main(["until_compiled"])
