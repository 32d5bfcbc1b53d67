"""Runs the unittest cases of the calling program and reports each of them to Bazel.

Without it Bazel reports a Python test as a single case. This runner writes the file named by
XML_OUTPUT_FILE, as GoogleTest does, so that every method is counted and named.
"""

import os
import sys
import unittest
import xml.etree.ElementTree as ElementTree


class _Result(unittest.TextTestResult):
    """Keeps the error of each test method (None if it passed)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.trouble = {}

    def startTest(self, test):
        super().startTest(test)
        self.trouble[test.id()] = None

    def _note(self, test, kind, error):
        self.trouble[test.id()] = (kind, self._exc_info_to_string(error, test))

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "error", err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failure", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.trouble[test.id()] = ("skipped", reason)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, "failure", err)


def _write(result, path):
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name=os.path.basename(sys.argv[0]))
    for identity, trouble in result.trouble.items():
        classname, _, name = identity.rpartition(".")
        case = ElementTree.SubElement(suite, "testcase", classname=classname, name=name)
        if trouble is not None:
            ElementTree.SubElement(case, trouble[0]).text = trouble[1]
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def main():
    """Runs every case of __main__; exits with 1 if one failed or there was none."""
    cases = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(resultclass=_Result, verbosity=2).run(cases)
    if "XML_OUTPUT_FILE" in os.environ:
        _write(result, os.environ["XML_OUTPUT_FILE"])
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
