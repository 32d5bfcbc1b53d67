#!/usr/bin/env python3
"""Adds inputs to the archive of a fuzz target's corpus.

usage: scripts/corpus_add.py ARCHIVE FILE...

ARCHIVE is created if it does not exist. A file replaces an input of the same name. The same inputs
always give the same archive, byte for byte: entries are sorted by name, have a fixed time and mode,
and are stored, since the output of a compressor depends on its version and hides a change from git.

To list or unpack an archive: python3 -m zipfile -l ARCHIVE; python3 -m zipfile -e ARCHIVE FOLDER.
"""

import os
import pathlib
import sys
import zipfile

MODE = 0o100644
UNIX = 3


def read(archive):
    """The inputs of an archive by name."""
    if not archive.exists():
        return {}
    with zipfile.ZipFile(archive) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def write(archive, inputs):
    # A second file, so that an interrupted run leaves the old archive.
    part = archive.with_name(archive.name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as zipped:
        for name, data in sorted(inputs.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = UNIX
            entry.external_attr = MODE << 16
            zipped.writestr(entry, data)
    os.replace(part, archive)


def main(archive, *files):
    archive = pathlib.Path(archive)
    inputs = read(archive)
    before = len(inputs)
    inputs.update((file.name, file.read_bytes()) for file in map(pathlib.Path, files))
    write(archive, inputs)
    print(f"{archive}: {len(inputs)} inputs, {len(inputs) - before} of them new")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
