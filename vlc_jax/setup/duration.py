"""Duration of a run: the only place that converts epochs and examples to steps."""

from ml_collections import ConfigDict

from vlc_jax.errors import UsageError

DURATIONS = ("steps", "epochs", "examples")  # fields of a config, one of which is set
MOST_STEPS = 2**31 - 1  # the step is an int32 on the devices


def records_per_step(config: ConfigDict) -> int:
    """Records of a batch without hard images, which are further rows of it.

    Raises UsageError for a batch size that groups or sub-batches do not divide.
    """
    group = 1 + config.input.hard_images
    if config.sub_batches < 1 or config.batch_size // max(group, 1) % config.sub_batches:
        raise UsageError(
            f"config.batch_size={config.batch_size} must be a multiple of config.sub_batches="
            f"{config.sub_batches} times the {group} rows of an example (1 + input.hard_images)"
        )
    if group < 1 or config.batch_size % group:
        raise UsageError(
            f"config.batch_size={config.batch_size} is not divisible by 1 + input.hard_images"
            f" = {group}: hard images are rows of the batch"
        )
    return config.batch_size // group


def total_steps(config: ConfigDict, records: int) -> int:
    """Steps of the whole run, from config.steps, .epochs or .examples.

    records: number of records of the source, hard images not counted.
    """
    durations = {name: config[name] for name in DURATIONS if config[name] is not None}
    if len(durations) != 1:
        raise UsageError(f"set exactly one of config.steps, .epochs, .examples; got {durations}")
    ((unit, value),) = durations.items()
    per_step = records_per_step(config)
    examples = {"steps": value * per_step, "epochs": value * records, "examples": value}[unit]
    steps = int(examples // per_step)
    if steps > MOST_STEPS:
        raise UsageError(f"config.{unit}={value} are {steps:,} steps; at most {MOST_STEPS:,}")
    if steps < 1:
        raise UsageError(f"config.{unit}={value} is less than one step of {per_step} records")
    return steps
