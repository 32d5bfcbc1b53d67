// Random messages to the core and to a model of adoption and copies that is too simple to be wrong.
// The model has no plans, no trees and no waiting, and scans all of its state.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

// One object.
struct Model {
  struct Attempt {
    Generation generation;
    uint64_t size = 0;
    bool complete = false;
    bool superseded = false;
  };
  std::optional<Generation> adopted;
  uint64_t size = 0;
  bool sealed = false;
  std::set<NodeKey> complete;
  std::vector<Attempt> attempts;
  uint32_t conflicts = 0;
  bool deleted = false;
  bool lost = false;  // and no node has a part of it
  std::set<NodeKey> wants;

  Attempt* Find(const Generation& g) {
    for (Attempt& a : attempts) {
      if (a.generation == g) return &a;
    }
    return nullptr;
  }
  void Conflict(const Attempt& a) {
    if (a.complete && a.size != size) ++conflicts;
  }
  void Seal(const NodeKey& node) {
    complete.insert(node);
    wants.erase(node);
    sealed = true;
    for (Attempt& a : attempts) {
      if (!a.superseded) Conflict(a);
      a.superseded = true;
    }
  }
  void Adopt(const Attempt& a) {
    adopted = a.generation;
    size = a.size;
    sealed = false;
    deleted = false;
    lost = false;
    if (a.complete) Seal(a.generation.creator);
  }
  void Create(const Attempt& a) {
    if (!adopted) return Adopt(a);
    attempts.push_back(a);
    if (complete.empty()) return Settle();
    attempts.back().superseded = true;
    Conflict(a);
  }
  void SealAt(const NodeKey& node, const Generation& g) {
    if (adopted == g) return Seal(node);
    Attempt* a = Find(g);
    if (a == nullptr || a->complete) return;
    a->complete = true;
    if (a->superseded) Conflict(*a);
  }
  void Leave(const NodeKey& node) {
    complete.erase(node);
    wants.erase(node);
    std::erase_if(attempts, [&](const Attempt& a) { return a.generation.creator == node; });
    if (adopted && !sealed && adopted->creator == node) adopted.reset();
    Settle();
  }
  void Withdraw(const NodeKey& node, const Generation& g) {
    std::erase_if(attempts, [&](const Attempt& a) { return a.generation == g; });
    if (adopted == g) {
      complete.erase(node);
      if (!sealed) adopted.reset();
    }
    Settle();
  }
  void Settle() {
    if (adopted && sealed && complete.empty()) {
      const bool standby = std::any_of(attempts.begin(), attempts.end(),
                                       [](const Attempt& a) { return !a.superseded; });
      // Lost: remembered only if a node wants the object, or has an attempt to drop.
      lost = !standby && wants.empty() && attempts.empty();
      if (standby || lost) adopted.reset();
    }
    if (adopted) return;
    // If no node has a part of an object, the shard remembers nothing of it.
    if (attempts.empty() && wants.empty()) conflicts = 0;
    const Attempt* best = nullptr;
    for (const Attempt& a : attempts) {
      if (a.superseded) continue;
      if (best == nullptr || std::make_pair(!a.complete, a.generation) <
                                 std::make_pair(!best->complete, best->generation)) {
        best = &a;
      }
    }
    if (best == nullptr) return;
    const Attempt chosen = *best;
    std::erase_if(attempts, [&](const Attempt& a) { return a.generation == chosen.generation; });
    Adopt(chosen);
  }
  void Delete() {
    if (!adopted && !lost) return;
    *this = Model();
    deleted = true;
  }
};

class Driver {
 public:
  explicit Driver(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 5; ++i) nodes_.push_back(h_.Up("n" + std::to_string(i)));
    for (int i = 0; i < 3; ++i) ids_.push_back(Id(std::to_string(i)));
  }

  void Step() {
    const ObjectId id = ids_[random_.Below(ids_.size())];
    const NodeKey node = nodes_[random_.Below(nodes_.size())];
    Model& model = models_[id];
    switch (random_.Below(9)) {
      case 0:
      case 1:
        Create(id, node, model);
        break;
      case 2:
        SealSomething(id, node, model);
        break;
      case 3:
      case 4:
        Want(id, node, model);
        break;
      case 5:
      case 6:
        FinishSomething(id, model);
        break;
      case 7:
        Part(id, node, model);
        break;
      default:
        if (random_.Chance(0.3)) Crash(node);
        break;
    }
  }

  void Compare() {
    for (const ObjectId& id : ids_) {
      const Model& model = models_[id];
      const v1::DescribeObjectResponse real = h_.Describe(id);
      const v1::ObjectSummary& summary = real.summary();
      SCOPED_TRACE(id.hex());
      ASSERT_EQ(summary.deleted(), model.deleted && !model.adopted && model.wants.empty());
      if (summary.deleted()) continue;
      ASSERT_EQ(summary.has_generation(), model.adopted.has_value());
      if (model.adopted) {
        ASSERT_EQ(FromProto(summary.generation()), *model.adopted);
      }
      std::set<NodeKey> complete;
      for (const v1::CopyDescription& copy : real.copies()) {
        if (copy.complete()) complete.insert(FromProto(copy.node()));
      }
      ASSERT_EQ(complete, model.complete);
      if (model.adopted) {
        ASSERT_EQ(summary.conflicts(), model.conflicts);
      }
    }
  }

 private:
  void Create(const ObjectId& id, const NodeKey& node, Model& model) {
    const uint64_t size = 100 + random_.Below(2);
    const bool complete = random_.Chance(0.5);
    if (model.complete.contains(node) || model.wants.contains(node)) return;
    const Generation g = h_.Create(node, id, {.size = size, .complete = complete});
    created_[{id, node}].push_back(g);
    model.Create({g, size, complete, false});
  }

  void SealSomething(const ObjectId& id, const NodeKey& node, Model& model) {
    auto& mine = created_[{id, node}];
    if (mine.empty()) return;
    const Generation g = mine[random_.Below(mine.size())];
    const bool writes = model.adopted == g ? !model.sealed : model.Find(g) != nullptr;
    if (!writes) return;
    h_.Seal(node, id, g);
    model.SealAt(node, g);
  }

  void Want(const ObjectId& id, const NodeKey& node, Model& model) {
    const bool writes = model.adopted && model.adopted->creator == node && !model.sealed;
    if (model.complete.contains(node) || writes) return;
    h_.Want(node, id);
    if (!model.adopted && model.deleted) return;
    model.wants.insert(node);
  }

  void FinishSomething(const ObjectId& id, Model& model) {
    for (const NodeKey& node : nodes_) {
      const NodeKey sender = h_.SenderOf(node, id);
      const bool current = model.adopted && model.wants.contains(node) &&
                           h_.LastAssign(node, id)->generation == *model.adopted;
      if (!sender.valid() || !current || !model.complete.contains(sender)) continue;
      h_.Finish(node, id);
      model.Seal(node);
      return;
    }
  }

  // Withdraws, evicts or deletes.
  void Part(const ObjectId& id, const NodeKey& node, Model& model) {
    const uint64_t way = random_.Below(3);
    if (way == 0 && !created_[{id, node}].empty()) {
      const Generation g = created_[{id, node}].back();
      created_[{id, node}].pop_back();
      const bool current = model.adopted == g;
      h_.Withdraw(node, id, g);
      if (current) NobodyHasFinished(id, node);
      model.Withdraw(node, g);
    } else if (way == 1 && model.adopted && model.complete.contains(node)) {
      h_.Evict(node, id, *model.adopted);
      if (model.complete.size() > 1) model.complete.erase(node);
    } else if (way == 2 && random_.Chance(0.3)) {
      h_.Delete(node, id);
      model.Delete();
    }
  }

  // The sender's receivers report at once that they did not finish, the others that they continue.
  void NobodyHasFinished(const ObjectId& id, const NodeKey& sender) {
    for (const NodeKey& other : nodes_) {
      if (h_.SenderOf(other, id) == sender) h_.Fail(other, id);
      if (h_.SenderOf(other, id).valid()) h_.Progress(other, id, 50, 1e6);
    }
  }

  void Crash(const NodeKey& node) {
    h_.Down(node);
    for (const ObjectId& id : ids_) {
      NobodyHasFinished(id, node);
      models_[id].Leave(node);
      created_[{id, node}].clear();
    }
    std::erase(nodes_, node);
    nodes_.push_back(h_.Up(absl::StrCat("later", node.node)));
  }

  Random random_;
  Harness h_;
  std::vector<NodeKey> nodes_;
  std::vector<ObjectId> ids_;
  std::map<ObjectId, Model> models_;
  std::map<std::pair<ObjectId, NodeKey>, std::vector<Generation>> created_;
};

TEST(DirectoryCoreModelTest, TheCoreAdoptsAndListsAsTheModel) {
  const uint64_t first = phalanx::testing::TestSeed(1);
  const uint64_t last = phalanx::testing::SeedGiven() ? first : first + 499;
  for (uint64_t seed = first; seed <= last; ++seed) {
    PHALANX_TRACE_SEED(seed);
    Driver driver(seed);
    for (int i = 0; i < 200; ++i) {
      SCOPED_TRACE(absl::StrCat("step ", i));
      driver.Step();
      driver.Compare();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace phalanx::directory
