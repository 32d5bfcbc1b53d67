"""Objects that live as long as some process holds them, with processes that hold, pass on and die."""

import unittest

from tests.process.harness import ID_A, ID_B, ClusterTest, Holder

ID_C = "cc" * 20


class LifetimeTest(ClusterTest):
    def start(self, nodes, shards=1, arguments=()):
        self.cluster.start_shards(shards)
        self.cluster.start_nodes(nodes, arguments)

    def holder(self, node):
        holder = Holder(self.cluster.nodes[node])
        self.addCleanup(holder.kill)
        return holder

    def ok(self, holder, *words):
        answer = holder.execute(*words)
        self.assertTrue(answer.startswith("OK"), f"{words}: {answer}")
        return answer.removeprefix("OK").strip()

    def await_freed(self, *ids):
        for object_id in ids:
            self.cluster.follow(lambda look: look["deleted"], "describe", object_id)

    def await_holders(self, object_id, holders):
        return self.cluster.follow(
            lambda look: look["holders"] == holders and look["complete_copies"] > 0, "describe", object_id
        )

    def test_an_object_lives_until_its_last_holder_releases_it(self):
        self.start(2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 100)
        self.ok(first, "put", ID_B, 3 << 20)
        for object_id in (ID_A, ID_B):
            self.ok(second, "hold", object_id)
            self.ok(second, "get", object_id)
            self.assertTrue(self.await_holders(object_id, 2)["owned"])
            self.ok(first, "release", object_id)
            self.await_holders(object_id, 1)
            self.ok(second, "release", object_id)
        self.await_freed(ID_A, ID_B)
        self.assertIn("NOT_FOUND", second.execute("get", ID_A))

    def test_the_objects_of_a_killed_process_are_freed(self):
        self.start(2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 3 << 20)
        self.ok(second, "hold", ID_A)
        self.await_holders(ID_A, 2)
        first.kill()
        self.await_holders(ID_A, 1)
        second.kill()
        self.await_freed(ID_A)

    def test_a_passed_reference_is_always_held(self):
        self.start(2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 100)
        token = self.ok(first, "transit", ID_A)
        first.kill()
        self.await_holders(ID_A, 1)
        self.ok(second, "claim", ID_A, token)
        self.ok(second, "get", ID_A)
        # The sender's node has released it, long before the reference in transit expires.
        self.cluster.follow(lambda look: look["holders"] == 1, "describe", ID_A)
        self.ok(second, "release", ID_A)
        self.await_freed(ID_A)

    def test_an_unclaimed_reference_is_held_for_a_while(self):
        self.start(1, arguments=["--transit-patience=300ms"])
        first = self.holder("n0")
        self.ok(first, "put", ID_A, 100)
        self.ok(first, "transit", ID_A)
        first.kill()
        self.await_freed(ID_A)

    def test_objects_live_as_long_as_objects_that_refer_to_them(self):
        self.start(2, shards=2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 100)
        self.ok(first, "put", ID_B, 100, ID_A)
        self.ok(first, "release", ID_A)
        self.ok(second, "hold", ID_B)
        self.ok(second, "get", ID_B)
        self.await_holders(ID_B, 2)
        first.kill()
        self.ok(second, "get", ID_A)
        self.ok(second, "release", ID_B)
        self.await_freed(ID_B, ID_A)

    def test_holders_are_registered_again_after_the_restart_of_the_directory(self):
        self.start(2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 100)
        self.ok(first, "put", ID_B, 100)
        self.ok(second, "hold", ID_A)
        self.ok(first, "release", ID_A)
        self.await_holders(ID_A, 1)
        self.cluster.shards[0].kill()
        first.kill()
        self.cluster.restart_shard(0)
        self.cluster.wait_for_nodes(2)
        self.await_freed(ID_B)
        self.ok(second, "get", ID_A)
        self.ok(second, "release", ID_A)
        self.await_freed(ID_A)

    def test_a_node_that_dies_holds_for_a_lease(self):
        self.start(2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 100)
        self.ok(second, "hold", ID_A)
        self.ok(first, "release", ID_A)
        self.await_holders(ID_A, 1)
        self.cluster.nodes["n1"].kill()
        self.await_freed(ID_A)

    def test_kept_objects_stay(self):
        self.start(1)
        first = self.holder("n0")
        self.ok(first, "put", ID_A, 100)
        self.ok(first, "put", ID_B, 100)
        self.ok(first, "keep", ID_A)
        self.assertIn("NOT_FOUND", first.execute("keep", ID_C))
        first.kill()
        self.await_freed(ID_B)
        look = self.cluster.ask("describe", ID_A)
        self.assertEqual((look["complete_copies"], look["owned"]), (1, False))

    def test_a_result_is_owned_by_the_caller(self):
        self.start(2)
        first, second = self.holder("n0"), self.holder("n1")
        self.ok(first, "put", ID_A, 4096)
        self.ok(second, "put", ID_B, 4096)
        self.ok(first, "reduce", ID_C, ID_A, ID_B)
        self.assertTrue(self.await_holders(ID_C, 1)["owned"])
        first.kill()
        self.await_freed(ID_A, ID_C)
        self.await_holders(ID_B, 1)

    def open_reduction(self, opener, adder):
        """Return a client that waits for the result of a reduction which two clients hold open."""
        self.ok(opener, "open", ID_C)
        self.cluster.follow(lambda look: look.get("reduction") is not None, "describe", ID_C)
        self.ok(adder, "put", ID_A, 100)
        self.ok(adder, "add", ID_C, ID_A)
        reader = self.holder("n0")
        reader.begin("get", ID_C)
        self.cluster.follow(lambda look: look["waiting"] == 1, "describe", ID_C)
        return reader

    def check_that_an_open_reduction_ends_with_its_last_client(self, shards):
        self.start(2, shards)
        opener, adder = self.holder("n0"), self.holder("n1")
        reader = self.open_reduction(opener, adder)
        opener.kill()
        self.ok(adder, "put", ID_B, 100)
        self.ok(adder, "add", ID_C, ID_B)
        adder.kill()
        answer = reader.finish()
        self.assertIn("CANCELLED", answer)
        self.assertIn(ID_C, answer)
        self.assertIn("open it again", answer)
        late = self.holder("n1")
        self.assertIn("the last client", late.execute("close", ID_C))
        self.assertIn("CANCELLED", late.execute("get", ID_C))

    def test_an_open_reduction_ends_with_its_last_client(self):
        self.check_that_an_open_reduction_ends_with_its_last_client(shards=1)

    def test_an_open_reduction_ends_with_its_last_client_on_three_shards(self):
        self.check_that_an_open_reduction_ends_with_its_last_client(shards=3)

    def test_an_open_reduction_is_closed_by_another_client_than_the_one_that_died(self):
        self.start(2)
        opener, adder = self.holder("n0"), self.holder("n1")
        reader = self.open_reduction(opener, adder)
        opener.kill()
        self.ok(self.holder("n0"), "close", ID_C)
        self.assertEqual(reader.finish(), "OK")

    def test_an_open_reduction_of_a_dead_node_ends_after_a_lease(self):
        self.start(2)
        opener = self.holder("n1")
        self.ok(opener, "open", ID_C)
        self.cluster.follow(lambda look: look.get("reduction") is not None, "describe", ID_C)
        reader = self.holder("n0")
        reader.begin("get", ID_C)
        self.cluster.nodes["n1"].kill()
        self.assertIn("CANCELLED", reader.finish())

    def test_a_get_that_fails_when_lost_names_the_last_holder(self):
        self.start(2)
        first, second, third = self.holder("n0"), self.holder("n1"), self.holder("n1")
        self.ok(first, "put", ID_A, 3 << 20)
        self.ok(second, "hold", ID_A)
        self.await_holders(ID_A, 2)
        self.cluster.nodes["n0"].kill()
        answer = second.execute("get", ID_A, "fail")
        self.assertIn("DATA_LOSS", answer)
        self.assertIn("n0", answer)
        self.assertIn(ID_A, answer)
        third.begin("get", ID_A)
        self.cluster.follow(lambda look: look["waiting"] == 1, "describe", ID_A)
        self.assertIn("DATA_LOSS", second.execute("get", ID_A, "fail"))
        self.ok(second, "put", ID_A, 3 << 20)
        self.assertEqual(third.finish(), "OK")


if __name__ == "__main__":
    unittest.main()
