"""Builds the wheel. Its tag names a platform but no Python version: it has an executable and a library.

Manual pages and completions, in share/, are installed into the share/ of the environment.
"""

import os
import pathlib

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class _BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class _Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", os.environ.get("PHALANX_WHEEL_PLATFORM") or super().get_tag()[2]


setup(
    distclass=_BinaryDistribution,
    cmdclass={"bdist_wheel": _Wheel},
    data_files=[
        (str(path.parent), [str(path)]) for path in sorted(pathlib.Path("share").rglob("*")) if path.is_file()
    ],
)
