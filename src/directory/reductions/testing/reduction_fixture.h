// The parts of the reductions' subsystem over an ObjectTable with three nodes, each of which a test
// drives by itself. Testonly.
//
// The target and source 0, source 1, ... belong to this shard; ForeignSource belongs to another one
// if there are two shards. Node a has source 0, node b has source 1, and so on, when Put says so.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TESTING_REDUCTION_FIXTURE_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TESTING_REDUCTION_FIXTURE_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/ids/digest.h"
#include "src/common/ids/version.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/objects/object_fixture.h"
#include "src/directory/reductions/commit_tracker.h"
#include "src/directory/reductions/fold_dispatcher.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_descriptors.h"
#include "src/directory/reductions/source_watcher.h"

namespace phalanx::directory::testing {

inline constexpr uint64_t kSourceBytes = 8 << 20;

// Records the rings whose sources changed, and hands them on to the driver if there is one.
class FakeRings final : public RingListener {
 public:
  void OnSourceLost(Reduction& reduction) override {
    lost.push_back(reduction.target);
    if (driver != nullptr) driver->OnSourceLost(reduction);
  }

  RingListener* driver = nullptr;
  std::vector<ObjectId> lost;
};

// The lines "node: kind" of messages.
using Lines = std::vector<std::string>;

// What tests of the parts and of the whole subsystem share: messages, sources, what was sent.
class ReductionMessages : public ObjectFixture {
 protected:
  explicit ReductionMessages(const DirectoryOptions& options = {}, bool learning = false)
      : ObjectFixture(options, learning) {}

  static std::string Bytes(const ObjectId& id) {
    return std::string(id.binary().data(), ObjectId::kSize);
  }
  // The first id of that name, with a number behind it, that belongs here, or to another shard.
  ObjectId IdOf(const std::string& name, bool foreign = false) const {
    for (int i = 0;; ++i) {
      const ObjectId id = ObjectId::FromName("test", absl::StrCat(name, ".", i));
      if (context_.IsForeign(id) == foreign) return id;
    }
  }
  ObjectId Source(int i) const { return IdOf(absl::StrCat("source", i)); }
  ObjectId ForeignSource() const { return IdOf("foreign", /*foreign=*/true); }
  std::vector<ObjectId> Sources(int count) const {
    std::vector<ObjectId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(Source(i));
    return ids;
  }
  ReduceSpec SpecOf(int sources, bool open = false) const {
    ReduceSpec spec;
    spec.sources = Sources(sources);
    spec.open = open;
    return spec;
  }
  // The node has a complete copy of the source, which it created.
  void Put(const NodeKey& key, const ObjectId& id, uint64_t size = kSourceBytes) {
    v1::AnnounceCreate m;
    m.set_object_id(Bytes(id));
    ToProto(Gen(key), m.mutable_generation());
    m.mutable_info()->set_size_bytes(size);
    m.mutable_info()->set_slices(1);
    m.set_complete(true);
    EXPECT_EQ(table_.OnCreate(node(key), m), absl::OkStatus());
  }
  // Source i on the i-th node.
  void PutSources(int count) {
    const NodeKey keys[] = {kA, kB, kC};
    for (int i = 0; i < count; ++i) Put(keys[i], Source(i));
    outbox_.Take();
  }
  // What was sent since the last call.
  Lines Sent() {
    Lines lines;
    for (const Outgoing& out : outbox_.Take()) {
      const int kind = out.message.kind_case();
      lines.push_back(absl::StrCat(nodes_.NameOf(out.to), ": ",
                                   out.message.GetDescriptor()->FindFieldByNumber(kind)->name()));
    }
    return lines;
  }

  // The id of the `count`-th reduction of an earlier life of the shard.
  static auto EarlierId(uint64_t count) { return MakeReductionId(11, 12, count); }

  LinkModel links_;
  FailedPairs pairs_{context_.options.lease};
  ReductionParts parts_{context_,    nodes_,    outbox_, gate_,  table_,
                        tombstones_, failures_, holds_,  links_, pairs_};
  const ObjectId target_ = IdOf("target");
};

class ReductionFixture : public ReductionMessages {
 protected:
  explicit ReductionFixture(const DirectoryOptions& options = {}, bool learning = false)
      : ReductionMessages(options, learning) {
    listeners_ = {&pulls_, &reductions_, &drains_, &placements_};
  }
  ~ReductionFixture() override {
    EXPECT_EQ(catalog_.CheckInvariants(), absl::OkStatus());
    EXPECT_EQ(watcher_.CheckInvariants(), absl::OkStatus());
  }

  Reduction& Begin(ReduceSpec spec, const NodeKey& root = {}) {
    const std::vector<ObjectId> sources = spec.sources;
    Reduction* reduction = catalog_.Begin(target_, std::move(spec), root, {});
    EXPECT_NE(reduction, nullptr);
    watcher_.Watch(*reduction, sources);
    return *reduction;
  }
  Reduction& Begin(int sources, const NodeKey& root = {}) { return Begin(SpecOf(sources), root); }
  void Erase(Reduction& reduction) {
    watcher_.UnwatchAll(reduction);
    catalog_.Erase(reduction);
  }
  // The plan begins, and its folds are ordered.
  void BeginPlan(Reduction& reduction) {
    reduction.phase = ReductionPhase::kPlanned;
    reduction.plan.SetCosts(ReduceCosts());
    reduction.plan.Begin();
    ApplyEffects(reduction);
  }
  void ApplyEffects(Reduction& reduction) {
    for (const ReduceEffect& effect : reduction.plan.TakeEffects()) {
      if (const auto* place = std::get_if<PlaceFold>(&effect)) dispatcher_.Apply(reduction, *place);
      if (const auto* drop = std::get_if<DropFold>(&effect)) dispatcher_.Apply(reduction, *drop);
      if (const auto* commit = std::get_if<CommitFold>(&effect)) {
        dispatcher_.Apply(reduction, *commit);
      }
    }
  }
  // The change of the object reaches the plans.
  void Changed(const ObjectId& id) {
    watcher_.NoteChange(id);
    watcher_.RunChanges();
  }
  // The targets that are to run again, since the last call.
  size_t Touched() {
    size_t touched = 0;
    for (; catalog_.has_touched(); ++touched) catalog_.TakeTouched();
    return touched;
  }

  ReductionCatalog catalog_{context_, tombstones_};
  FakeRings fake_rings_;
  SourceWatcher watcher_{parts_, catalog_, fake_rings_};
  ReductionDescriptors descriptors_{parts_, catalog_, watcher_};
  FoldDispatcher dispatcher_{parts_, watcher_, descriptors_};
  CommitTracker commits_{parts_, catalog_, watcher_};
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TESTING_REDUCTION_FIXTURE_H_
