"""The version of this release. src/common/release.h has the same."""

__version__ = "0.1.0"
