"""The house style over the whole tree, one case per check."""

import pathlib
import unittest

from bazel import unittest_xml
from tests.tidy import tidy

# The test runs outside the sandbox, so this runfile links to the real tree.
ROOT = pathlib.Path("WORKSPACE").resolve().parent


class TreeTest(unittest.TestCase):
    tree = tidy.Tree(ROOT)


def _case(check):
    def test(self):
        findings = check(self.tree)
        self.assertFalse(findings, "\n" + "\n".join(findings))

    test.__doc__ = check.__doc__
    return test


for each in tidy.CHECKS:
    setattr(TreeTest, each.__name__.replace("check_", "test_"), _case(each))

if __name__ == "__main__":
    unittest_xml.main()
