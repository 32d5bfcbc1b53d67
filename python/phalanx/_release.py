"""Which release this is; src/common/release.h says the same."""

__version__ = "0.1.0"
