"""Tests records: sizes, the statistics over runs, and the error for a file without records."""

import json
import pathlib
import tempfile
import unittest

from bazel import unittest_xml
from benchmarks import records

RECORD = {"op": "broadcast", "size_bytes": 1024, "world": 8, "median_s": 0.002, "min_s": 0.001, "max_s": 0.003,
          "limit_s": 0.001, "verified": True}


class RecordsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "a.json"

    def load(self, what):
        self.path.write_text(what if isinstance(what, str) else json.dumps(what))
        return records.load(self.path)

    def refusal(self, what):
        with self.assertRaises(records.BadInput) as caught:
            self.load(what)
        return str(caught.exception)

    def test_a_size_is_read_as_it_is_written(self):
        for size in (1, 1000, 1024, 64 << 10, 3 << 20, 1 << 30):
            self.assertEqual(records.parse_size(records.format_size(size).replace(" ", "")), size)
        self.assertEqual(records.parse_size("4096"), 4096)

    def test_what_is_no_size_is_named(self):
        for text in ("", "0", "-1", "1.5MiB", "KiB", "1kb", "1 KiB"):
            with self.assertRaisesRegex(records.BadInput, "is no size; sizes are"):
                records.parse_size(text)

    def test_the_statistic_is_median_minimum_and_maximum_over_runs(self):
        summary = records.summarize({"op": "reduce", "each_s": [5, 1, 2, 4, 3, 100]})
        self.assertEqual((summary["median_s"], summary["min_s"], summary["max_s"], summary["runs"]), (3.5, 1, 100, 6))
        self.assertEqual(summary["op"], "reduce")

    def test_records_are_loaded_and_those_without_a_size_left_out(self):
        barrier = dict(RECORD, op="group_barrier", size_bytes=0)
        self.assertEqual(self.load([RECORD, {"op": "idle", "world": 8}, barrier]), [RECORD])

    def test_a_missing_key_is_named_with_file_and_record(self):
        for key in records.REQUIRED:
            lacking = {other: value for other, value in RECORD.items() if other != key}
            self.assertIn(f"{self.path}, record 2 has no '{key}'", self.refusal([RECORD, lacking]))

    def test_a_value_of_another_type_is_named(self):
        for key, value in (("median_s", "fast"), ("world", None), ("size_bytes", True), ("verified", 1)):
            self.assertIn(f"record 1: '{key}' is {json.dumps(value)}", self.refusal([dict(RECORD, **{key: value})]))

    def test_a_time_that_no_axis_can_show_is_refused(self):
        self.assertIn("more than 0", self.refusal([dict(RECORD, median_s=0)]))
        self.assertIn("more than 0", self.refusal("[" + json.dumps(dict(RECORD, median_s=float("nan"))) + "]"))

    def test_what_is_no_json_or_no_list_is_named(self):
        self.assertIn(f"{self.path} is not JSON", self.refusal("[{"))
        self.assertIn("has no list of records", self.refusal({"op": "broadcast"}))
        self.assertIn("record 1 is 5, not a record", self.refusal([5]))
        with self.assertRaisesRegex(records.BadInput, "cannot read .*No such file"):
            records.load(self.path.parent / "absent.json")


if __name__ == "__main__":
    unittest_xml.main()
