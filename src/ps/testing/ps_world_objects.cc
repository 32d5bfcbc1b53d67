// The objects of PsWorld.
#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/ps/rows/object_parts.h"
#include "src/ps/rows/ring_sums.h"
#include "src/ps/split.h"
#include "src/ps/testing/ps_world.h"

namespace phalanx::ps::testing {
namespace {

template <typename T>
void AddTo(std::string& sum, const std::string& more) {
  for (size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, sum.data() + at, sizeof(T));
    std::memcpy(&b, more.data() + at, sizeof(T));
    a += b;
    std::memcpy(sum.data() + at, &a, sizeof(T));
  }
}

std::string Fold(bool counts, const std::vector<std::string>& sources) {
  std::string sum = sources[0];
  for (size_t i = 1; i < sources.size(); ++i) {
    PHALANX_CHECK(sources[i].size() == sum.size(), "objects of one part have one size");
    if (counts) {
      AddTo<int64_t>(sum, sources[i]);
    } else {
      AddTo<float>(sum, sources[i]);
    }
  }
  return sum;
}

}  // namespace

// A reduction that is under way holds its objects, and a node has copies.
void PsWorld::Forget(const Member& owner, uint64_t life) {
  if (!plan_.objects) return;
  const uint64_t stays = random_.Chance(0.1) ? 40'000 : 8'000;
  After(random_.Chance(0.5) ? 0 : random_.Below(stays), [this, owner, life] {
    std::erase_if(objects_, [&](const auto& entry) {
      return entry.second.owner == owner && entry.second.life == life;
    });
  });
}

std::string PsWorld::Member::Prefix(uint64_t life) const {
  return absl::StrCat(is_server ? "s" : "w", rank, ".", life);
}

// The servers free all versions that are read no more, but the newest, and with kBsp the one
// before.
void PsWorld::CheckVersionsLeft() {
  const auto done = [this] {
    return std::all_of(servers_.begin(), servers_.end(),
                       [](const Server& server) { return !server.live || server.core->done(); });
  };
  while (wrong_.empty() && !done() && !events_.empty()) RunEvent();
  std::map<Member, size_t> left;
  for (const auto& [name, object] : objects_) {
    if (object.owner.is_server && IsLive(object.owner, object.life)) ++left[object.owner];
  }
  for (const auto& [owner, count] : left) {
    if (count <= 2 * plan_.tables.size()) continue;
    Wrong(absl::StrCat("server ", owner.rank, " has ", count, " versions at the end"));
  }
}

bool PsWorld::HasLostLink(const Member& one, uint64_t life, const Member& other,
                          uint64_t other_life) const {
  const std::pair<Member, uint64_t> a = {one, life};
  const std::pair<Member, uint64_t> b = {other, other_life};
  for (const StreamKey& key : {StreamKey{a, b}, StreamKey{b, a}}) {
    const auto found = streams_.find(key);
    if (found != streams_.end() && found->second.link > 0) return true;
  }
  return false;
}

// ---- servers

// There may be no memory for it, which is known a while later; or it is lost after a while.
bool PsWorld::Publish(Server& server, int rank, const internal::ServerCore::Publish& publish) {
  if (!ending_ && !plan_.exact && random_.Chance(plan_.chances.store_fails * 0.3)) {
    missing_[publish.handle] = Missing::kNoMemory;
    ++counts_.failed_versions;
    After(100 + random_.Below(4'000),
          [this, rank, life = server.life, table = publish.table, handle = publish.handle] {
            if (!IsLive({true, rank}, life)) return;
            servers_[rank].core->OnPublishFailed(table, handle,
                                                 absl::ResourceExhaustedError("no memory"));
            Drain(servers_[rank], rank);
          });
    return true;
  }
  if (!ending_ && !plan_.exact && random_.Chance(plan_.chances.store_fails * 0.2)) {
    After(random_.Below(5'000), [this, handle = publish.handle] {
      if (objects_.erase(handle) == 0) return;
      missing_[handle] = Missing::kLost;
      ++counts_.failed_versions;
    });
  }
  const Object object{std::string(publish.bytes()), {true, rank}, server.life};
  return objects_.emplace(publish.handle, object).second;
}

void PsWorld::ActOnObjects(Server& server, int rank, const internal::ServerCore::Effects& effects) {
  for (const internal::ServerCore::Publish& publish : effects.publishes) {
    if (!Publish(server, rank, publish)) {
      Wrong(absl::StrCat("server ", rank, " publishes ", publish.handle, " twice"));
    }
  }
  for (const std::string& handle : effects.unpublishes) {
    const auto missing = missing_.find(handle);
    const bool freed = missing != missing_.end() && missing->second == Missing::kFreed;
    if (objects_.erase(handle) == 0 && (missing == missing_.end() || freed)) {
      Wrong(absl::StrCat("server ", rank, " frees ", handle, ", which is not there"));
    }
    if (missing == missing_.end()) missing_[handle] = Missing::kFreed;
  }
  for (const std::string& handle : effects.voids) Void(handle);
  for (const uint32_t table : effects.cancels) {
    DropSums(server, [table](const Sum& sum) { return sum.table == table; });
  }
  for (const internal::ServerCore::Reduce& reduce : effects.reduces) {
    const auto of_table = [&](const Sum& sum) { return sum.table == reduce.table; };
    if (reduce.only) DropSums(server, of_table);
    server.sums.push_back(
        {reduce.table, reduce.attempt, reduce.handles, reduce.base, reduce.target});
    After(200 + random_.Below(4'000),
          [this, rank, life = server.life, table = reduce.table, attempt = reduce.attempt] {
            TrySum(rank, life, table, attempt);
          });
  }
}

std::string PsWorld::SumOf(const Sum& sum) const {
  std::vector<std::string> sources;
  if (sum.ring()) sources.push_back(objects_.at(sum.base).bytes);
  for (const std::string& handle : sum.handles) sources.push_back(objects_.at(handle).bytes);
  if (!sum.ring()) return Fold(plan_.IsCounts(sum.table), sources);
  std::string all;
  for (const internal::RingSlice& slice : internal::RingSlices(sources[0].size(), sources.size())) {
    std::vector<std::string> parts;
    for (const size_t source : slice.sources) {
      parts.push_back(sources[source].substr(slice.begin, slice.bytes));
    }
    all += Fold(plan_.IsCounts(sum.table), parts);
  }
  return all;
}

// A worker that reads it finds that it is gone.
void PsWorld::Void(const std::string& target) {
  objects_.erase(target);
  missing_[target] = Missing::kLost;
}

void PsWorld::DropSums(Server& server, const std::function<bool(const Sum&)>& which) {
  for (const Sum& sum : server.sums) {
    if (sum.ring() && which(sum)) Void(sum.target);
  }
  std::erase_if(server.sums, which);
}

void PsWorld::FailSum(int rank, uint32_t table, uint64_t attempt, const absl::Status& why) {
  Server& server = servers_[rank];
  DropSums(server, [&](const Sum& sum) { return sum.is(table, attempt); });
  server.core->OnReduceFailed(table, attempt, why);
  Drain(server, rank);
}

void PsWorld::TrySum(int rank, uint64_t life, uint32_t table, uint64_t attempt) {
  if (!IsLive({true, rank}, life)) return;
  Server& server = servers_[rank];
  const auto found = std::find_if(server.sums.begin(), server.sums.end(),
                                  [&](const Sum& sum) { return sum.is(table, attempt); });
  if (found == server.sums.end()) return;
  if (!ending_ && random_.Chance(plan_.chances.store_fails * 0.3)) {
    return FailSum(rank, table, attempt, absl::ResourceExhaustedError("no memory"));
  }
  std::vector<std::string> needed = found->handles;
  if (found->ring()) needed.push_back(found->base);
  if (std::any_of(needed.begin(), needed.end(),
                  [this](const std::string& name) { return !objects_.contains(name); })) {
    ++counts_.lost_sums;
    if (random_.Chance(0.2)) return FailSum(rank, table, attempt, absl::NotFoundError("freed"));
    After(2'000, [this, rank, life, table, attempt] { TrySum(rank, life, table, attempt); });
    return;
  }
  const std::string sum = SumOf(*found);
  // Workers can read it before the server has it.
  const bool made = found->ring() && random_.Chance(0.7);
  if (made) objects_[found->target] = Object{sum, {true, rank}, life};
  counts_.rings += made ? 1 : 0;
  // Its slices are summed then.
  if (found->ring() && !made) {
    ++counts_.broken_rings;
    server.core->OnSlices(table, attempt);
    Drain(server, rank);
  }
  After(random_.Below(2'000),
        [this, rank, life, table, attempt, sum] { Summed(rank, life, table, attempt, sum); });
}

void PsWorld::Summed(int rank, uint64_t life, uint32_t table, uint64_t attempt,
                     const std::string& sum) {
  if (!IsLive({true, rank}, life)) return;
  Server& server = servers_[rank];
  const auto found = std::find_if(server.sums.begin(), server.sums.end(),
                                  [&](const Sum& one) { return one.is(table, attempt); });
  if (found == server.sums.end()) return;
  ++counts_.sums;
  const Sum done = *found;
  server.sums.erase(found);
  DropSums(server, [&](const Sum& one) { return one.table == table; });
  const bool made = done.ring() && objects_.contains(done.target);
  const bool needed = server.core->OnReduced(table, attempt, sum, made);
  if (made && !needed) Void(done.target);
  Drain(server, rank);
}

// ---- workers

void PsWorld::ActOnObjects(Worker& worker, int rank) {
  const internal::WorkerCore::Objects objects = worker.core->TakeObjects();
  for (const std::string& name : objects.frees) objects_.erase(name);
  for (const internal::WorkerCore::Objects::Fetch& fetch : objects.fetches) {
    worker.fetches.insert(fetch.number);
    After(random_.Below(random_.Chance(0.2) ? 10'000 : 1'500),
          [this, rank, life = worker.life, fetch] { Fetched(rank, life, fetch); });
  }
  for (const uint64_t number : objects.dropped) worker.fetches.erase(number);
}

void PsWorld::Fetched(int rank, uint64_t life, const internal::WorkerCore::Objects::Fetch& fetch) {
  if (!IsLive({false, rank}, life)) return;
  Worker& worker = workers_[rank];
  const Member server = {true, fetch.server};
  // It waits for the object, until the pull is refused or its server is gone.
  const auto missing = missing_.find(fetch.name);
  const bool lost = missing != missing_.end() && missing->second == Missing::kLost;
  // What was never there is on its way.
  const bool ahead = missing == missing_.end() && !objects_.contains(fetch.name) &&
                     IsLive(server, LifeOf(server)) &&
                     absl::StartsWith(fetch.name, server.Prefix(LifeOf(server)) + "/");
  const bool no_memory = missing != missing_.end() && missing->second == Missing::kNoMemory;
  const bool waits = ahead || no_memory;
  if (waits && worker.fetches.contains(fetch.number)) {
    counts_.ahead += ahead ? 1 : 0;
    After(3'000, [this, rank, life, fetch] { Fetched(rank, life, fetch); });
    return;
  }
  const bool wanted = worker.fetches.erase(fetch.number) > 0;
  const auto found = objects_.find(fetch.name);
  if (!ending_ && !plan_.exact && random_.Chance(plan_.chances.store_fails * 0.1)) {
    ++counts_.failed_versions;
    worker.core->OnFetched(fetch.number, absl::ResourceExhaustedError("no memory"));
  } else if (found != objects_.end()) {
    ++counts_.fetches;
    const std::string bytes = found->second.bytes;
    worker.core->OnFetched(fetch.number, absl::string_view(bytes));
  } else {
    // Without a loss the server, if it lives, knows that it is read.
    const uint64_t of = LifeOf(server);
    if (wanted && !lost && IsLive(server, of) &&
        absl::StartsWith(fetch.name, absl::StrCat(server.Prefix(of), "/")) &&
        !HasLostLink({false, rank}, life, server, of)) {
      Wrong(absl::StrCat("server ", fetch.server, " has freed ", fetch.name, ", which worker ",
                         rank, " reads"));
    }
    worker.core->OnFetched(fetch.number, absl::NotFoundError("freed"));
  }
  Drain(worker, rank);
}

void PsWorld::PutPart(const Member& owner, uint64_t life, uint32_t table,
                      const internal::WorkerCore::DensePush::Part& part,
                      const std::string& values) {
  const internal::Splitter splitter(plan_.tables[table], plan_.servers);
  Object object{std::string(part.bytes, '\0'), owner, life};
  internal::GatherPart(plan_.tables[table], splitter, part.server, values.data(),
                       object.bytes.data());
  objects_.emplace(part.name, std::move(object));
}

// Some of the objects are there at once, and can be lost before the push is made.
bool PsWorld::BeginPut(Worker& worker, int rank, const PsPlan::Step& step) {
  absl::StatusOr<internal::WorkerCore::DensePush> push = worker.core->BeginPushDense(step.table);
  if (!push.ok()) {
    Wrong(absl::StrCat("BeginPushDense by worker ", rank, ": ", push.status().ToString()));
    return false;
  }
  const std::string values = ValuesOf(worker, rank, step);
  for (const auto& part : push->parts) {
    if (random_.Chance(0.5)) PutPart({false, rank}, worker.life, step.table, part, values);
  }
  worker.putting = true;
  After(random_.Below(1'500), [this, rank, life = worker.life, &step, push = *push, values] {
    EndPut(rank, life, step, push, values);
  });
  return false;
}

void PsWorld::EndPut(int rank, uint64_t life, const PsPlan::Step& step,
                     internal::WorkerCore::DensePush push, const std::string& values) {
  if (!IsLive({false, rank}, life)) return;
  Worker& worker = workers_[rank];
  worker.putting = false;
  absl::Status put;
  if (!ending_ && random_.Chance(plan_.chances.store_fails * 0.3)) {
    put = absl::ResourceExhaustedError("no memory");
    worker.refused.insert(step.table);
  } else {
    for (const auto& part : push.parts) PutPart({false, rank}, life, step.table, part, values);
  }
  const auto ticket = worker.core->EndPushDense(step.table, std::move(push), put);
  if (ticket.ok()) {
    auto call = std::make_unique<Call>();
    call->read.table = step.table;
    call->read.clock = worker.clock;
    worker.calls[*ticket] = std::move(call);
    ++worker.step;
  } else if (put.ok()) {
    Wrong(absl::StrCat("EndPushDense by worker ", rank, ": ", ticket.status().ToString()));
  }
  Drain(worker, rank);
}

}  // namespace phalanx::ps::testing
