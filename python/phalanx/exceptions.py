"""The errors that Phalanx raises, each also the built-in error that it is a kind of."""

from __future__ import annotations


class ValueFormatError(ValueError):
    """An object's metadata or bytes are not what this package writes; nothing of it was run."""


class PickleRefusedError(TypeError):
    """``allow_pickle=False`` was given, and the value cannot travel without pickle."""
