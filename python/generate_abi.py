"""generate_abi.py HEADER OUTPUT: writes cffi's declarations of phalanx/c.h as a Python module."""

import pathlib
import sys

import cffi

_BEGIN, _END = "/* ---- begin ---- */", "/* ---- end ---- */"


def main() -> None:
    header, output = map(pathlib.Path, sys.argv[1:])
    declarations = header.read_text().split(_BEGIN)[1].split(_END)[0]
    ffi = cffi.FFI()
    ffi.cdef(declarations)
    ffi.set_source("phalanx._abi", None)
    ffi.emit_python_code(str(output))


main()
