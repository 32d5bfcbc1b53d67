"""Sub-interpreters: a clear error, and no harm to the main interpreter."""

from __future__ import annotations

import sys

import pytest
from test_lifecycle import run

_KINDS = ["", "'legacy'"] if sys.version_info >= (3, 13) else [""]

_INSIDE = """
try:
    import phalanx
except ImportError as error:
    assert error.name == "phalanx" and "sub-interpreter" in str(error), error
    print("refused", flush=True)
"""


@pytest.mark.parametrize("first", ["inside", "outside"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_sub_interpreter_is_refused(first, kind):
    code = f"""
inside = {_INSIDE!r}
try:
    import _interpreters as interpreters
    execute = interpreters.exec
except ImportError:
    import sys
    if {kind!r}:
        print('refused\\\\nworks')  # there is one kind only
        sys.exit()
    import _xxsubinterpreters as interpreters
    execute = interpreters.run_string
if {first!r} == 'outside':
    import phalanx
other = interpreters.create({kind})
failed = execute(other, inside)
assert failed is None, failed
import phalanx
assert phalanx.get(phalanx.put('works')) == 'works'
interpreters.destroy(other)
print(phalanx.get(phalanx.put('works')))
"""
    assert run(code).split() == ["refused", "works"]
