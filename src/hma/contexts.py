"""Which inference contexts a model can answer in."""

from typing import get_args

from hma.config import ConfigError, Context, HMAConfig
from hma.errors import wrong_choice


def allowed_context(context: Context, config: HMAConfig) -> Context:
    """Return the context that a model answers in when asked for ``context``, or refuse it.

    Example:
        >>> allowed_context("batch", HMAConfig())  # rows vote by distance
        'alone'
    """
    if context not in get_args(Context):
        raise ConfigError(wrong_choice("context", context, get_args(Context)))
    if config.votes:
        if context == "anchors":
            raise ConfigError("context='anchors' needs similarity='dot', got 'distance'")
        return "alone"  # a row sees no other anyway
    if context == "anchors" and not config.batch_attention:
        raise ConfigError("context='anchors' needs batch_attention=True, got False")
    return context
