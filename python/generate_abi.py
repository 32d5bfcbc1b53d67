"""generate_abi.py HEADER... OUTPUT: writes cffi's declarations of phalanx/c.h, and of the headers that it includes at
its end, as a Python module.
"""

import pathlib
import sys

import cffi

_BEGIN, _END = "/* ---- begin ---- */", "/* ---- end ---- */"


def main() -> None:
    *headers, output = map(pathlib.Path, sys.argv[1:])
    ffi = cffi.FFI()
    for header in headers:
        ffi.cdef(header.read_text().split(_BEGIN)[1].split(_END)[0])
    ffi.set_source("phalanx._abi", None)
    ffi.emit_python_code(str(output))


main()
