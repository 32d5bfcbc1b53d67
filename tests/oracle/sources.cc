#include "tests/oracle/sources.h"

#include <atomic>
#include <thread>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/ids.h"
#include "src/directory/directory_core.h"
#include "src/directory/directory_core_world.h"
#include "src/directory/reduce_plan.h"
#include "src/directory/reduce_plan_random.h"

namespace phalanx::oracle {
namespace {

using directory::DirectoryCore;

// ToString of the ids shortens them.
std::string Numbers(const NodeKey& key) { return absl::StrCat(key.node, ".", key.incarnation); }
std::string Numbers(const Generation& generation) {
  return absl::StrCat(Numbers(generation.creator), "#", generation.sequence);
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
  options.on_outgoing = [&transcript](const DirectoryCore::Outgoing& out) {
    transcript.Add(Numbers(out.to), out.message);
  };
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
                    Numbers(input.generation), ":", Numbers(input.node));
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

}  // namespace

std::vector<Source> AllSources(uint64_t first, uint64_t seeds) {
  return {
      {"core-world", first, seeds, RunCoreWorld},
      {"reduce-plan", first, seeds, RunReducePlan},
  };
}

Digest SourceDigest::Of(size_t begin, size_t end) const {
  std::string all;
  for (size_t i = begin; i < end && i < cases.size(); ++i) {
    all.append(reinterpret_cast<const char*>(cases[i].data()), cases[i].size());
  }
  return DigestOf(all);
}

SourceDigest Listen(const Source& source, int threads, Transcript::Options options) {
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
