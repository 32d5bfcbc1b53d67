"""Builds the wheel of the version that PHALANX_RELEASE says, for that version of the package phalanx."""

import os

from setuptools import setup

_RELEASE = os.environ["PHALANX_RELEASE"]

setup(version=_RELEASE, install_requires=[f"phalanx=={_RELEASE}"])
