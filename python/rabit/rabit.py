"""Rabit's Python functions, by their own name: `import rabit`. They are those of phalanx.rabit."""

from phalanx.rabit import *  # noqa: F403
from phalanx.rabit import __all__ as __all__
