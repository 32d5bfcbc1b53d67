"""Debian packages that a benchmark needs beyond those of scripts/setup."""

import os
import subprocess

from benchmarks.records import BadInput


def missing(packages):
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}"]
    return [package for package in packages
            if subprocess.run(query + [package], capture_output=True, text=True, check=False).stdout != "installed"]


def require(packages, command):
    """Raises BadInput, with `command` as the remedy, if any package is missing."""
    absent = missing(packages)
    if absent:
        raise BadInput(f"these Debian packages are missing: {' '.join(absent)}; install them with {command} (as root)")


def install(packages):
    absent = missing(packages)
    if not absent:
        return
    if os.geteuid() != 0:
        raise BadInput(f"installing {' '.join(absent)} needs root")
    print(f"Installing {len(absent)} packages: {' '.join(absent)}", flush=True)
    quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"]
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    try:
        subprocess.run(quiet + ["update"], check=True, env=environment)
        subprocess.run(quiet + ["install", "--yes", "--no-install-recommends"] + absent, check=True, env=environment,
                       stdout=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        raise BadInput(f"apt-get could not install {' '.join(absent)}; its message is above") from error
