#include "tests/oracle/sources.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "bazel/fuzz_corpus.h"
#include "src/collectives/fuzz/reducer_fuzz.h"
#include "src/common/check.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/common/random.h"
#include "src/common/testing/message_listener.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/fuzz/shard_fuzz.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_random.h"
#include "src/directory/testing/directory_core_world.h"
#include "src/object_store/testing/store_fuzz.h"
#include "src/sim/workloads/broadcast_simulation.h"
#include "src/sim/workloads/delete_simulation.h"
#include "src/sim/workloads/lifetime_simulation.h"
#include "src/sim/workloads/reduce_simulation.h"
#include "src/sim/workloads/simulation.h"
#include "tests/simulation/coarse_broadcast.h"
#include "tests/simulation/coarse_crowd.h"
#include "tests/simulation/coarse_reduce.h"

namespace phalanx::oracle {
namespace {

using directory::DirectoryCore;

// ToString of the ids shortens them.
std::string Numbers(const NodeKey& key) { return absl::StrCat(key.node, ".", key.incarnation); }
std::string Numbers(const Generation& generation) {
  return absl::StrCat(Numbers(generation.creator), "#", generation.sequence);
}
std::string Numbers(const SlotVersion& version) { return Numbers(version.AsGeneration()); }
auto ToTranscript(Transcript& transcript) {
  return [&transcript](const DirectoryCore::Outgoing& out) {
    transcript.Add(Numbers(out.to), out.message);
  };
}
testing::MessageListener ListenerOf(Transcript& transcript) {
  return [&transcript](absl::string_view to, const google::protobuf::Message& message) {
    transcript.Add(to, message);
  };
}
std::string Hex(const ObjectId& id) {
  return absl::BytesToHexString(absl::string_view(id.binary().data(), ObjectId::kSize));
}

// ---- directory_core_world.h

directory::testing::World::Options CoreWorldOptions(uint64_t seed) {
  directory::testing::World::Options options;
  switch (seed % 4) {
    case 0:  // longer chains of relays than faults let grow
      options.crashes = options.fencing = options.shard_restarts = options.disconnects = false;
      options.nodes = 9;
      break;
    case 1:  // rivals for one object
      options.objects = 1;
      break;
    default:
      break;
  }
  return options;
}

void RunCoreWorld(uint64_t seed, Transcript& transcript) {
  directory::testing::World::Options options = CoreWorldOptions(seed);
  options.on_outgoing = ToTranscript(transcript);
  directory::testing::World world(options, seed);
  absl::Status status;
  for (int i = 0; i < 400 && status.ok(); ++i) status = world.Step();
  if (status.ok()) status = world.Settle();
  if (status.ok()) status = world.Check();
  transcript.Add("world", status);
}

// ---- reduce_plan_random.h

std::string LineOf(const directory::FoldTask& task) {
  std::string line = absl::StrCat(
      "place ", Numbers(task.version), " slot ", task.slot, " of ", task.slots, " degree ",
      task.degree, " bytes ", task.size_bytes, " root ", task.root, " committed ", task.committed,
      " planned ", task.planned, " metadata ", absl::BytesToHexString(task.metadata), " inputs");
  for (const directory::FoldInput& input : task.inputs) {
    absl::StrAppend(&line, " ", static_cast<int>(input.kind), ":", Hex(input.source), ":",
                    input.kind == directory::FoldInput::Kind::kSlot ? Numbers(input.version)
                                                                    : Numbers(input.generation),
                    ":", Numbers(input.node));
  }
  absl::StrAppend(&line, " from");
  for (const ObjectId& id : task.reduced_from) absl::StrAppend(&line, " ", Hex(id));
  return line;
}

void AddEffect(const directory::ReduceEffect& effect, Transcript& transcript) {
  if (const auto* place = std::get_if<directory::PlaceFold>(&effect)) {
    transcript.Add(Numbers(place->node), LineOf(place->task));
  } else if (const auto* drop = std::get_if<directory::DropFold>(&effect)) {
    transcript.Add(Numbers(drop->node), absl::StrCat("drop ", Numbers(drop->version)));
  } else if (const auto* commit = std::get_if<directory::CommitFold>(&effect)) {
    transcript.Add(Numbers(commit->node), absl::StrCat("commit ", Numbers(commit->version)));
  } else {
    transcript.Add("end", std::get<directory::EndReduction>(effect).why);
  }
}

void RunReducePlan(uint64_t seed, Transcript& transcript) {
  const absl::Status status = directory::testing::RunRandomReduction(
      seed, /*trace=*/false,
      [&transcript](const directory::ReduceEffect& effect) { AddEffect(effect, transcript); });
  transcript.Add("world", status);
}

// ---- tests/simulation/coarse_*.h: plans drawn from the seed

void RunCoarseBroadcast(uint64_t seed, Transcript& transcript) {
  Random random(seed);
  sim::CoarsePlan plan;
  plan.receivers = 10 + static_cast<int>(random.Below(400));
  plan.size_bytes = plan.links.hop_bytes << random.Below(7);
  plan.measured = random.Chance(0.8);
  plan.waiting = random.Chance(0.5);
  plan.relays_killed = random.Chance(0.5) ? static_cast<int>(random.Below(6)) : 0;
  plan.listener = ToTranscript(transcript);
  sim::RunCoarseBroadcast(plan);
}

void RunCoarseReduce(uint64_t seed, Transcript& transcript) {
  Random random(seed);
  sim::CoarseReducePlan plan;
  plan.sources = 2 + static_cast<int>(random.Below(500));
  plan.size_bytes = plan.links.hop_bytes << random.Below(7);
  plan.listener = ToTranscript(transcript);
  sim::RunCoarseReduce(plan);
}

void RunCoarseCrowd(uint64_t seed, Transcript& transcript) {
  Random random(seed);
  sim::CrowdPlan plan;
  plan.seed = seed;
  plan.nodes = 3 + static_cast<int>(random.Below(8));
  plan.size_bytes = plan.hop_bytes << random.Below(7);
  plan.listener = ToTranscript(transcript);
  sim::CoarseCrowd crowd(plan);
  crowd.BroadcastFrom(1);
  crowd.BroadcastFrom(plan.nodes);
  crowd.BroadcastFrom(2);
}

// ---- src/sim: whole clusters

void RunCluster(uint64_t seed, Transcript& transcript) {
  sim::SimulationPlan plan = sim::DrawPlan(seed);
  plan.cluster.listener = ListenerOf(transcript);
  transcript.Add("world", sim::RunSimulation(plan).status);
}

// A kind of run that its plan determines.
template <typename Plan>
auto ClusterOf(Plan (*draw)(uint64_t, bool), sim::SimulationResult (*run)(const Plan&)) {
  return [draw, run](uint64_t seed, Transcript& transcript) {
    Plan plan = draw(seed, /*peace=*/false);
    plan.world.cluster.listener = ListenerOf(transcript);
    transcript.Add("world", run(plan).status);
  };
}

// ---- the corpora of fuzz targets

// In the order of their bytes: names of inputs, and how a corpus is stored, do not count.
std::vector<std::string> ReadCorpus(const std::string& folder) {
  std::vector<std::string> inputs;
  for (FuzzInput& input : ReadFuzzCorpus(folder)) inputs.push_back(std::move(input.bytes));
  std::sort(inputs.begin(), inputs.end());
  PHALANX_CHECK(!inputs.empty(), "a corpus has inputs");
  return inputs;
}

using PlayInput = void (*)(absl::string_view, const testing::MessageListener&);

Source CorpusSource(std::string name, const std::string& folder, PlayInput play) {
  const auto inputs = std::make_shared<const std::vector<std::string>>(ReadCorpus(folder));
  return {std::move(name), /*first=*/0, inputs->size(),
          [inputs, play](uint64_t number, Transcript& transcript) {
            play((*inputs)[number], ListenerOf(transcript));
          }};
}

}  // namespace

std::vector<Source> AllSources(uint64_t first, uint64_t seeds) {
  const uint64_t some = (seeds + kSlower - 1) / kSlower;
  return {
      {"core-world", first, seeds, RunCoreWorld},
      {"reduce-plan", first, seeds, RunReducePlan},
      {"coarse-broadcast", first, some, RunCoarseBroadcast},
      {"coarse-reduce", first, some, RunCoarseReduce},
      {"coarse-crowd", first, some, RunCoarseCrowd},
      {"cluster", first, some, RunCluster},
      {"cluster-reduce", first, some,
       ClusterOf<sim::ReducePlanOfRun>(sim::DrawReducePlan, sim::RunReduceSimulation)},
      {"cluster-lifetime", first, some,
       ClusterOf<sim::LifetimePlan>(sim::DrawLifetimePlan, sim::RunLifetimeSimulation)},
      {"cluster-delete", first, some,
       ClusterOf<sim::DeletePlan>(sim::DrawDeletePlan, sim::RunDeleteSimulation)},
      {"cluster-broadcast", first, some,
       ClusterOf<sim::BroadcastPlan>(sim::DrawBroadcastPlan, sim::RunBroadcastSimulation)},
      CorpusSource("shard-corpus", "src/directory/fuzz/shard_corpus", directory::PlayShardInput),
      CorpusSource("store-corpus", "src/object_store/store/store_corpus",
                   object_store::testing::PlayStoreInput),
      CorpusSource("reducer-corpus", "src/collectives/fuzz/reducer_corpus",
                   collectives::testing::PlayReducerInput),
  };
}

Digest SourceDigest::Of(size_t begin, size_t end) const {
  std::string all;
  for (size_t i = begin; i < end && i < cases.size(); ++i) {
    all.append(reinterpret_cast<const char*>(cases[i].data()), cases[i].size());
  }
  return DigestOf(all);
}

SourceDigest RunSource(const Source& source, int threads, Transcript::Options options) {
  SourceDigest result{source.name, source.first, 0, std::vector<Digest>(source.cases)};
  std::atomic<uint64_t> next = 0;
  std::atomic<uint64_t> messages = 0;
  const auto work = [&] {
    for (uint64_t i = next++; i < source.cases; i = next++) {
      Transcript transcript(options);
      source.run(source.first + i, transcript);
      result.cases[i] = transcript.digest();
      messages += transcript.messages();
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  result.messages = messages;
  return result;
}

}  // namespace phalanx::oracle
