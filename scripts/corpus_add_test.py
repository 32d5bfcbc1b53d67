"""What corpus_add.py leaves in an archive."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from bazel import unittest_xml
from scripts import corpus_add


class CorpusAddTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.archive = self.folder / "corpus.zip"

    def add(self, **inputs):
        for name, data in inputs.items():
            (self.folder / name).write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()):
            corpus_add.main(self.archive, *(self.folder / name for name in inputs))

    def test_keeps_the_inputs_of_the_archive(self):
        self.add(a=b"first")
        self.add(b=b"\0\xff")
        self.assertEqual(corpus_add.read(self.archive), {"a": b"first", "b": b"\0\xff"})

    def test_replaces_an_input_of_the_same_name(self):
        self.add(a=b"first")
        self.add(a=b"second")
        self.assertEqual(corpus_add.read(self.archive), {"a": b"second"})

    def test_writes_the_same_bytes_in_whatever_order_inputs_are_added(self):
        self.add(a=b"first", b=b"second")
        together = self.archive.read_bytes()
        self.archive.unlink()
        self.add(b=b"second")
        self.add(a=b"first")
        self.assertEqual(self.archive.read_bytes(), together)


if __name__ == "__main__":
    unittest_xml.main()
