"""Tests the counts of count_results.py for a phase's build events."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from bazel import unittest_xml
from scripts import count_results

LABEL = "//src/net:a_test"
GOOD = '<testcase classname="A" name="Good" status="run"/>'
BAD = '<testcase classname="A" name="Bad" status="run"><failure/></testcase>'
SKIPPED = '<testcase classname="A" name="Skipped" status="run"><skipped/></testcase>'


class CountResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def result(self, cases, status="PASSED"):
        """Returns the event of a test that reported these cases."""
        xml = self.folder / "test.xml"
        xml.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        outputs = [{"name": "test.xml", "uri": xml.as_uri()}]
        return {
            "id": {"testResult": {"label": LABEL}},
            "testResult": {"status": status, "testActionOutput": outputs},
        }

    def count(self, events, status):
        """Returns (exit status, last line) of a run with one phase."""
        lines = "\n".join(json.dumps(event) for event in events)
        (self.folder / "all.json").write_text(lines)
        (self.folder / "all.status").write_text(str(status))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = count_results.main(self.folder)
        return code, output.getvalue().splitlines()[-1]

    def test_cases_are_counted_and_skipped_ones_are_neither(self):
        self.assertEqual(self.count([self.result(GOOD * 3 + SKIPPED)], 0), (0, "3 passed, 0 failed"))

    def test_a_failed_case_fails_the_run(self):
        events = [self.result(GOOD + BAD, "FAILED")]
        self.assertEqual(self.count(events, 3), (1, "1 passed, 1 failed"))

    def test_a_test_that_failed_without_a_failed_case_is_one_failure(self):
        self.assertEqual(self.count([self.result(GOOD, "TIMEOUT")], 3), (1, "1 passed, 1 failed"))

    def test_a_test_that_did_not_build_is_one_failure(self):
        events = [{"id": {"targetCompleted": {"label": LABEL}}, "completed": {}}]
        self.assertEqual(self.count(events, 1), (1, "0 passed, 1 failed"))

    def test_a_test_that_was_configured_and_never_ran_is_one_failure(self):
        configured = {
            "id": {"targetConfigured": {"label": LABEL}},
            "configured": {"testSize": "SMALL"},
        }
        self.assertEqual(self.count([configured], 0), (1, "0 passed, 1 failed"))
        self.assertEqual(self.count([configured, self.result(GOOD)], 0), (0, "1 passed, 0 failed"))

    def test_a_phase_that_failed_without_naming_a_test_is_one_failure(self):
        self.assertEqual(self.count([self.result(GOOD)], 37), (1, "1 passed, 1 failed"))

    def test_reports_of_pytest_are_counted_with_their_phase(self):
        for index, cases in enumerate((GOOD, GOOD + BAD + SKIPPED)):
            report = f"<testsuites><testsuite>{cases}</testsuite></testsuites>"
            (self.folder / f"all-{index}.xml").write_text(report)
        self.assertEqual(self.count([self.result(GOOD)], 1), (1, "3 passed, 1 failed"))

    def test_nothing_at_all_is_no_success(self):
        self.assertEqual(self.count([], 0), (1, "0 passed, 0 failed"))


if __name__ == "__main__":
    unittest_xml.main()
