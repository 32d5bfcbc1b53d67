"""What measures.py counts, and how ratchet.txt keeps it, on small trees."""

import contextlib
import pathlib
import tempfile
import unittest

from bazel import unittest_xml
from tests.tidy import measures, tidy

HEADER = """
namespace net {
class Link {
 public:
  Link();
  void Open();
  int size() const { return size_; }

 private:
  struct Impl;
  static constexpr int kMany = 5;
  int size_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, std::pair<int, int>> pairs_;
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
};
}  // namespace net
"""
SOURCE = """
namespace net {
struct Link::Impl {
  void Run();
  int turns = 0;
};
void Link::Open() {
  size_ = 1;
}
void Link::Impl::Run() { ++turns; }
int Free() { return 1; }
namespace {
class Local {
  void F() {}
};
}  // namespace
}  // namespace net
"""


@contextlib.contextmanager
def tree_of(files):
    """A tree made of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            target = pathlib.Path(root) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        yield tidy.Tree(root)


def class_with(methods=0, fields=0, name="Big"):
    lines = [f"  void F{number}();" for number in range(methods)]
    lines += [f"  int f{number} = 0;" for number in range(fields)]
    return "\n".join([f"class {name} {{", *lines, "};", ""])


def comment(words, **rates):
    """So many words of comment, among them each of `rates` as often as its value says."""
    named = [word.rstrip("_") for word, times in rates.items() for _ in range(times)]
    return "// " + " ".join(named + ["word"] * (words - len(named))) + "\n"


class ClassesTest(unittest.TestCase):
    def sizes(self, files):
        with tree_of(files) as tree:
            found = measures.classes(tree)
        return {each.name: (each.methods, each.fields, each.lines) for each in found}

    def test_methods_fields_and_bodies_are_counted_over_header_and_source(self):
        sizes = self.sizes({"src/net/link.h": HEADER, "src/net/link.cc": SOURCE})
        self.assertEqual(sizes["net::Link"], (4, 2, 1 + 3))

    def test_a_nested_class_is_one_of_its_own_and_an_anonymous_namespace_leaves_no_name(self):
        sizes = self.sizes({"src/net/link.h": HEADER, "src/net/link.cc": SOURCE})
        self.assertEqual(sizes["net::Link::Impl"], (1, 1, 1))
        self.assertEqual(sizes["net::Local"], (1, 0, 1))
        self.assertEqual(len(sizes), 3)

    def test_a_struct_without_functions_but_operators_is_plain_data(self):
        text = """
            struct Options {
              int a = 0;
              std::function<void(int)> listener;
              friend bool operator==(const Options&, const Options&) = default;
              bool operator<(const Options& other) const { return a < other.a; }
            };
            struct Checked { int a = 0; absl::Status CheckInvariants() const; };
            struct Built { explicit Built(int a); int a; };
            class Closed { int a = 0; };
        """
        self.assertEqual(
            self.sizes({"src/a.h": text}),
            {"Checked": (1, 1, 0), "Built": (1, 1, 0), "Closed": (0, 1, 0)},
        )

    def test_a_python_class_has_the_fields_that_it_assigns_and_annotates(self):
        text = "class A:\n  x: int\n  def f(self):\n    self.y, z = 1, 2\n  def g(self):\n    self.y += 1\n"
        self.assertEqual(self.sizes({"python/a.py": text}), {"python/a.py:A": (2, 2, 4)})

    def test_a_named_tuple_without_methods_is_plain_data(self):
        plain = "class A(NamedTuple):\n  x: int\n"
        acting = "class B(NamedTuple):\n  x: int\n  def f(self):\n    return 1\n"
        self.assertEqual(self.sizes({"python/a.py": plain + acting}), {"python/a.py:B": (1, 1, 2)})


class KeptTest(unittest.TestCase):
    def findings(self, check, files, ratchet=""):
        with tree_of({**files, measures.RATCHET: ratchet}) as tree:
            return check(tree)

    def assert_found(self, check, files, beginning, ratchet=""):
        findings = self.findings(check, files, ratchet)
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(beginning), findings)

    def assert_kept(self, check, files, ratchet=""):
        self.assertEqual(self.findings(check, files, ratchet), [])

    def test_a_class_beyond_a_limit_is_found(self):
        check, place = tidy.check_class_size, "src/a.h:1: Big has "
        self.assert_kept(check, {"src/a.h": class_with(60, 20)})
        self.assert_found(check, {"src/a.h": class_with(61)}, place + "61 methods; the limit is 60")
        self.assert_found(check, {"src/a.h": class_with(1, 21)}, place + "21 fields; the limit is 20")
        long = "class Big {\n  void F() {\n" + "    G();\n" * 1299 + "  }\n};\n"
        self.assert_found(check, {"src/a.h": long}, place + "1301 lines of bodies")

    def test_an_entry_excuses_what_is_not_worse(self):
        files = {"src/a.h": class_with(100)}
        self.assert_kept(tidy.check_class_size, files, "# why\nmethods Big 100\n")
        self.assert_kept(tidy.check_class_size, files, "methods Big 110\n")
        self.assert_found(tidy.check_class_size, files, "src/a.h:1: Big", "methods Big 99\n")

    def test_a_stale_entry_is_found(self):
        place, ratchet = measures.RATCHET + ":1: ", "methods Big 112\n"
        self.assert_found(tidy.check_class_size, {"src/a.h": class_with(100)}, place, ratchet)
        self.assert_found(tidy.check_class_size, {"src/a.h": class_with(60)}, place, ratchet)
        self.assert_found(tidy.check_class_size, {}, place, ratchet)

    def test_a_folder_of_31_entries_is_found_and_a_corpus_is_not(self):
        check = tidy.check_folder_entries
        full = {f"src/net/f{number}.h": "" for number in range(30)}
        self.assert_kept(check, full)
        self.assert_found(check, {**full, "src/net/deep/a.h": ""}, "src/net:1: src/net has 31 entries")
        self.assert_found(check, {**full, "src/net/z.h": ""}, "src/net:1", "entries src/net 30\n")
        self.assert_kept(check, {f"src/net/a_corpus/{number}": "" for number in range(99)})
        self.assert_kept(check, {f"tests/process/{number}": "" for number in range(99)})

    def test_the_rates_of_words_are_bounded_on_both_sides(self):
        def files(**rates):
            return {"src/a.h": comment(10000, **{"if_": 80, "returns": 20, **rates})}

        self.assert_kept(tidy.check_words, files(told=2, who=2, nobody=1))
        self.assert_found(tidy.check_words, files(told=3, who=2, nobody=1), ".:1: tree has 6 'told'")
        self.assert_found(tidy.check_words, files(if_=59), ".:1: tree has 59 'if'")
        self.assert_found(tidy.check_words, files(if_=121), ".:1: tree has 121 'if'")
        self.assert_found(tidy.check_words, files(returns=9), ".:1: tree has 9 'returns'")
        self.assert_kept(tidy.check_words, files(returns=9), "returns tree 9\n")
        self.assert_found(tidy.check_words, files(returns=8), ".:1: tree", "returns tree 9\n")
        self.assert_found(tidy.check_words, files(returns=9), measures.RATCHET, "returns tree 5\n")

    def test_only_comments_docstrings_and_docs_have_words(self):
        texts = {
            "src/a.cc": 'int who = F("told", R"(nobody)");  // told\n',
            "python/a.py": 'who = "told"\n"""told"""  # nobody\n',
            "docs/a.md": "Who\n```\nwho\n```\n",
            "tests/a.cc": "// told\n",
        }
        with tree_of(texts) as tree:
            counts = measures.words(tree)
        self.assertEqual(dict(counts), {"told": 2, "nobody": 1, "who": 1, "": 4})

    def test_prose_is_8_to_12_percent_of_the_products_sources(self):
        def source(comments):
            return "// why\n" * comments + "\n" + "int x;  // no\n" * (100 - comments)

        self.assert_kept(tidy.check_prose, {"src/a.cc": source(8), "src/a_test.cc": source(0)})
        self.assert_found(tidy.check_prose, {"src/a.cc": source(7)}, ".:1: tree has 7 %")
        self.assert_found(tidy.check_prose, {"src/a.cc": source(13)}, ".:1: tree has 13 %")
        self.assert_kept(tidy.check_prose, {"src/a.cc": source(7)}, "prose tree 7\n")

    def test_lower_brings_entries_down_and_never_up(self):
        files = {"src/a.h": class_with(100) + class_with(70, name="More") + class_with(9, name="Fine")}
        ratchet = "# why\nmethods Big 150\nmethods Fine 70\nmethods Gone 80\nmethods More 65\n"
        with tree_of({**files, measures.RATCHET: ratchet}) as tree:
            measures.lower(tree)
            written = (tree.root / measures.RATCHET).read_text()
        self.assertEqual(written, "# why\nmethods Big 100\nmethods More 65\n")

    def test_the_table_names_the_largest(self):
        with tree_of({"src/a.h": class_with(3) + comment(50)}) as tree:
            table = measures.table(tree)
        self.assertIn("most methods: 3 in Big", table)
        self.assertIn("50 words of comment", table)
        self.assertIn("1  src", table)


if __name__ == "__main__":
    unittest_xml.main()
