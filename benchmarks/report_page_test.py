"""Tests the report's page: the content of a section, of a series, and of each cell."""

import unittest

from bazel import unittest_xml
from benchmarks import records, report_page

KIB = 1 << 10


def record(median=0.002, **others):
    made = {"op": "broadcast", "size_bytes": KIB, "world": 8, "median_s": median, "min_s": median / 2,
            "max_s": median * 2, "limit_s": 0.001, "verified": True, "rate": "1gbit", "zones": 1}
    made.update(others)
    records.check(made, "the test's record")
    return made


def peer(name="openmpi", choice="default", **others):
    return record(peer=name, choice=choice, algorithm="pipeline/32KiB" if choice == "best" else "default", **others)


class ReportPageTest(unittest.TestCase):
    def only(self, files):
        made = report_page.sections(files)
        self.assertEqual(len(made), 1)
        return made[0]

    def page(self, files, plots=None):
        return report_page.render(report_page.sections(files), files, plots or {})

    def test_ours_stands_beside_the_peers_of_the_same_hosts(self):
        page = self.page({"ours.json": [record()],
                          "peers.json": [peer(median=0.02), peer(choice="best", median=0.004), peer("gloo", median=3),
                                         peer("rabit", median=4)]})
        self.assertIn("## broadcast, 8 ranks, links of 1gbit\n", page)
        self.assertIn("| size | Phalanx | Open MPI, default | Open MPI, best | Gloo, default | Rabit, default | limit |\n"
                      "|---|---|---|---|---|---|---|\n"
                      "| 1 KiB | 2.000 (1.000, 4.000) | 20.0 (10.0, 40.0) | 4.000 (2.000, 8.000) pipeline/32KiB "
                      "| 3000 (1500, 6000) | 4000 (2000, 8000) | 1.000 |\n", page)
        self.assertIn("| size | Phalanx | Open MPI, default | Open MPI, best | Gloo, default | Rabit, default |\n"
                      "|---|---|---|---|---|---|\n"
                      "| 1 KiB | 2.00 | 20.00 | 4.00 | 3000.00 | 4000.00 |\n", page)

    def test_sizes_stand_in_order_and_what_was_not_measured_is_empty(self):
        page = self.page({"a.json": [record(size_bytes=1 << 20), record()], "b.json": [peer()]})
        self.assertIn("| 1 KiB | 2.000 (1.000, 4.000) | 2.000 (1.000, 4.000) | 1.000 |\n"
                      "| 1 MiB | 2.000 (1.000, 4.000) |  | 1.000 |\n", page)

    def test_another_op_world_rate_or_zoning_is_another_section(self):
        others = [record(), record(op="gather"), record(world=24), record(rate=None),
                  record(zones=2, zone_rate="250mbit")]
        made = report_page.sections({"a.json": others})
        self.assertEqual(sorted(section.title() for section in made), [
            "broadcast, 24 ranks, links of 1gbit", "broadcast, 8 ranks, links not shaped",
            "broadcast, 8 ranks, links of 1gbit", "broadcast, 8 ranks, links of 1gbit, 2 zones joined by 250mbit",
            "gather, 8 ranks, links of 1gbit"])
        self.assertEqual(len({section.name() for section in made}), len(others))

    def test_other_conditions_are_another_series(self):
        loaded = [record(), record(waiting=True), record(with_put=True, waiting=False), record(kill="1@0.5"),
                  record(clients=1, size_bytes=1 << 20), record(clients=4)]
        self.assertEqual(list(self.only({"a.json": loaded}).series),
                         ["Phalanx", "Phalanx, Gets waiting", "Phalanx, Put included", "Phalanx, killing 1@0.5",
                          "Phalanx, 4 clients each"])

    def test_the_calls_of_a_session_stand_beside_those_of_groups_and_peers(self):
        loaded = [record(op="job_allreduce"), record(op="group_allreduce"), record(op="job_kill_rank", model="32MiB")]
        allreduce, kill = report_page.sections({"a.json": loaded, "peers.json": [peer("rabit", op="group_allreduce")]})
        self.assertEqual((allreduce.op, list(allreduce.series)),
                         ("group_allreduce", ["Phalanx, session", "Phalanx", "Rabit, default"]))
        self.assertEqual((kill.op, list(kill.series)), ("job_kill_rank", ["Phalanx, a model of 32MiB"]))

    def test_the_same_series_of_two_files_is_named_after_them(self):
        section = self.only({"x/before.json": [record(), record(size_bytes=2 * KIB)], "after.json": [record()],
                             "peers.json": [peer()]})
        self.assertEqual(list(section.series), ["Phalanx (before)", "Phalanx (after)", "Open MPI, default"])
        self.assertEqual(section.sizes(), [KIB, 2 * KIB])

    def test_the_same_twice_in_one_file_is_refused_by_name(self):
        with self.assertRaisesRegex(records.BadInput, "a.json has broadcast, .*, 1 KiB twice for Phalanx"):
            report_page.sections({"a.json": [record(), record()]})

    def test_wrong_bytes_and_a_limit_that_is_not_there_are_told(self):
        page = self.page({"a.json": [record(verified=False, limit_s=0)]})
        self.assertIn("| 1 KiB | 2.000 (1.000, 4.000) **wrong bytes** | - |", page)
        self.assertIn("| 1 KiB | - |", page)

    def test_plots_stand_in_their_section(self):
        page = self.page({"a.json": [record()]}, {"broadcast-8-1gbit": [("time over size", "broadcast-8-1gbit-time.svg")]})
        self.assertTrue(page.endswith(
            "![broadcast, 8 ranks, links of 1gbit: time over size](broadcast-8-1gbit-time.svg)\n"))


if __name__ == "__main__":
    unittest_xml.main()
