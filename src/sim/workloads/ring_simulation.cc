#include "src/sim/workloads/ring_simulation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/slice_layout.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/ps/rows/ring_sums.h"
#include "src/sim/cluster/ordered_floats.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using object_store::View;

// The tolerance for a call's deadline.
constexpr absl::Duration kLate = absl::Seconds(1);
constexpr absl::Duration kPutPatience = absl::Seconds(5);
// A ring is not tried for smaller slices.
constexpr uint64_t kLeastSliceBytes = 4096;

class RingSimulation final : public ClientSimulation {
 public:
  explicit RingSimulation(const RingPlanOfRun& plan)
      : ClientSimulation(plan.world,
                         {.mean_pause = plan.mean_pause, .sample_every = plan.world.sample_every},
                         Random(plan.seed * 139 + 3), Random(plan.seed * 149 + 4)),
        plan_(plan) {}

 private:
  struct Call {
    NodeKey node;
    Instant began;
    Instant deadline = Instant::Infinite();
    bool ended = false;
    absl::Status status = {};
    Instant at = {};  // its end
    object_store::RequestId request = {};
    bool given_up = false;
  };
  struct Slice {
    ObjectId target;
    size_t number = 0;
  };
  struct Round {
    uint64_t number = 0;
    ObjectId target;
    std::vector<ObjectId> sources;
    std::vector<int> homes;       // the node that puts each source first
    std::vector<int> puts;        // of each source, so far
    std::vector<Instant> put_at;  // the last time
    std::vector<Slice> slices;
    std::vector<Call> calls;
    std::vector<Call> slice_calls;
    std::vector<Call> waits;  // Gets of the target without a deadline
    bool copied = false;      // a source was fetched
    bool deleted = false;     // the target, for whatever reason
    bool taken_back = false;  // the target, because there was no ring
    Instant taken_back_at = {};
    bool source_deleted = false;
    bool freed = false;
    std::string sum;  // as defined; empty until it is needed
    std::set<Generation> seen;
  };

  // ---- phases

  void Settle() override {
    AwaitSessions();
    Await("for reductions to end", [this] {
      PutMissing();
      FreeForMemory();
      for (size_t i = 0; i < rounds_.size(); ++i) {
        if (rounds_[i].freed) GiveUp(i);
      }
      return AllEnded();
    });
    for (const Round& round : rounds_) CheckEnds(round);
    Probe();
  }

  // A call of a node that has died does not end.
  bool Waits(const Call& call) const { return !call.ended && cluster_.FindNode(call.node) >= 0; }

  bool AnyWaits(const std::vector<Call>& calls) const {
    return std::any_of(calls.begin(), calls.end(),
                       [this](const Call& call) { return Waits(call); });
  }

  // A shard that has restarted has forgotten it, and a request that came later is for another one.
  bool KnowsTakenBack(const Round& round) const {
    const bool last = std::all_of(round.calls.begin(), round.calls.end(), [&](const Call& call) {
      return call.ended && call.at <= round.taken_back_at;
    });
    const Instant started = cluster_.last_shard_start(cluster_.ShardOf(round.target));
    return round.taken_back && last && started <= round.taken_back_at;
  }

  absl::Status AllEnded() {
    for (const Round& round : rounds_) {
      const bool ring = AnyWaits(round.calls);
      const bool slices = AnyWaits(round.slice_calls);
      const bool gets = KnowsTakenBack(round) && AnyWaits(round.waits);
      if (!ring && !slices && !gets) continue;
      return absl::UnavailableError(absl::StrCat(
          ring ? "the reduction of " : (slices ? "a slice of " : "a Get of "), NameOf(round),
          " has not ended: ", cluster_.Describe(round.target).ShortDebugString(), MemoryInUse()));
    }
    return absl::OkStatus();
  }

  std::string MemoryInUse() {
    std::string text;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      const object_store::StoreStats stats = cluster_.store(n)->stats();
      absl::StrAppend(&text, "; ", NodeName(n), ": ", stats.used_bytes, " bytes, of these ",
                      cluster_.node(n)->reducer().stats().scratch_bytes, " of folds, ",
                      stats.objects, " objects, ", stats.pins, " pins");
    }
    return text;
  }

  void PutMissing() {
    for (size_t i = 0; i < rounds_.size(); ++i) {
      if (rounds_[i].freed) continue;
      for (int source = 0; source < plan_.sources; ++source) {
        const size_t place = static_cast<size_t>(source);
        const ObjectId& id = rounds_[i].sources[place];
        const bool under_way =
            rounds_[i].puts[place] > 0 && now() < rounds_[i].put_at[place] + kPutPatience * 2;
        if (under_way || cluster_.Describe(id).summary().complete_copies() > 0) continue;
        OnNode(rounds_[i].homes[place], [this, i, source](int n) { Put(n, i, source); });
      }
    }
  }

  // What has ended gives way to what waits for memory.
  void FreeForMemory() {
    if (!plan_.tight()) return;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      Round& round = rounds_[i];
      if (round.freed || AnyWaits(round.calls) || AnyWaits(round.slice_calls)) continue;
      round.freed = round.deleted = true;
      OnNode(0, [this, i](int n) { Free(n, i); });
    }
  }

  // Checks that an error to a caller has a cause in the run.
  void CheckEnds(const Round& round) {
    for (const Call& call : round.calls) CheckEnd(round, call, /*of_slice=*/false);
    for (const Call& call : round.slice_calls) CheckEnd(round, call, /*of_slice=*/true);
  }

  void CheckEnd(const Round& round, const Call& call, bool of_slice) {
    if (!call.ended || call.given_up || call.status.ok()) return;
    const bool faults = !plan_.world.cluster.peaceful;
    const bool explained =
        (absl::IsNotFound(call.status) && (round.deleted || round.source_deleted)) ||
        (absl::IsDeadlineExceeded(call.status) && !call.deadline.infinite()) ||
        (absl::IsFailedPrecondition(call.status) && !of_slice && MayLackRing(round, call)) ||
        (absl::IsResourceExhausted(call.status) && (faults || plan_.tight())) ||
        (absl::IsUnavailable(call.status) && faults);
    if (explained) return;
    cluster_.journal().Violation(absl::StrCat(of_slice ? "a slice of " : "the reduction of ",
                                              NameOf(round), " ended with ",
                                              call.status.ToString()));
  }

  bool MayLackRing(const Round& round, const Call& call) const {
    const std::set<int> homes(round.homes.begin(), round.homes.end());
    const bool again =
        std::any_of(round.puts.begin(), round.puts.end(), [](int puts) { return puts > 1; });
    const uint64_t bytes = plan_.elements * sizeof(float);
    const uint64_t slice = SliceLayout{bytes, plan_.sources}.Size(plan_.sources - 1);
    // A shard's first lease: there may be folds of an earlier life.
    const bool learning = call.began < Instant() + plan_.world.cluster.lease * 2;
    return !plan_.world.cluster.peaceful || plan_.tight() || plan_.world.cluster.zones > 0 ||
           homes.size() < round.homes.size() || again || slice < kLeastSliceBytes ||
           round.deleted || round.source_deleted || learning;
  }

  void Probe() {
    if (failed()) return;
    cluster_.journal().Note("---- probe");
    for (size_t i = 0; i < rounds_.size(); ++i) {
      const Round& round = rounds_[i];
      const bool ok = std::any_of(round.calls.begin(), round.calls.end(), [this](const Call& c) {
        return c.ended && c.status.ok() && cluster_.FindNode(c.node) >= 0;
      });
      // The last copy can have died with its node after the call was answered.
      const bool there = cluster_.Describe(round.target).summary().complete_copies() > 0;
      if (!ok || round.deleted || !there) continue;
      for (int n = 0; n < cluster_.num_nodes(); ++n) {
        OnNode(n, [this, i](int node) { Get(node, i, absl::Seconds(30), /*must=*/true); });
      }
    }
    RunFor(absl::Milliseconds(100));
    Await("to have probed", [this] {
      return probes_open_ == 0 ? absl::OkStatus()
                               : absl::UnavailableError(absl::StrCat(probes_open_, " calls wait"));
    });
  }

  void CleanUp() override {
    OnNode(0, [this](int n) {
      for (size_t i = 0; i < rounds_.size(); ++i) Free(n, i);
    });
    RunFor(absl::Seconds(1));
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      OnNode(n, [this](int node) {
        const auto client = clients_.find(cluster_.node(node)->key());
        if (client == clients_.end()) return;
        cluster_.node(node)->reducer().ClientClosed(client->second);
        cluster_.store(node)->CloseClient(client->second, /*clean=*/true);
        clients_.erase(client);
      });
    }
  }

  absl::Status Empty() override {
    if (absl::Status status = checkers_.Empty(); !status.ok()) return status;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      const collectives::Reducer::Stats stats = cluster_.node(n)->reducer().stats();
      if (stats.folds == 0 && stats.scratch_bytes == 0 && stats.waiting == 0) continue;
      return absl::UnavailableError(absl::StrCat(NodeName(n), ": ", stats.folds, " folds, ",
                                                 stats.scratch_bytes, " bytes of theirs, ",
                                                 stats.waiting, " calls"));
    }
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      v1::GetStatusResponse status;
      cluster_.shard(s)->FillStatus(&status);
      if (status.reductions() == 0) continue;
      return absl::UnavailableError(
          absl::StrCat(ShardName(s), ": ", status.reductions(), " reductions"));
    }
    return absl::OkStatus();
  }

  // ---- acts of clients; each on the node's control loop

  void Act(int n) override {
    if (plan_.copies > 0 && !rounds_.empty() && random_.Chance(plan_.copies)) {
      return Fetch(n, AnyRound());
    }
    const double choice = random_.Unit();
    if (choice < 0.2 || rounds_.empty()) {
      StartRound(n);
    } else if (choice < 0.35) {
      Reduce(n, AnyRound());
    } else if (choice < 0.65) {
      Get(n, AnyRound(), AnyTimeout(), /*must=*/false);
    } else if (choice < 0.8) {
      PutAny(n, AnyRound());
    } else if (choice < 0.83) {
      Round& round = rounds_[AnyRound()];
      round.deleted = true;
      Delete(n, round.target);
    } else if (choice < 0.85) {
      Round& round = rounds_[AnyRound()];
      round.source_deleted = true;
      Delete(n, round.sources[random_.Below(round.sources.size())]);
    }
  }

  // One of the most recent rounds.
  size_t AnyRound() {
    const size_t last = std::min<size_t>(rounds_.size(), 3);
    return rounds_.size() - 1 - random_.Below(last);
  }
  absl::Duration AnyTimeout() {
    return random_.Chance(0.6) ? absl::InfiniteDuration() : absl::Seconds(5) * random_.Unit();
  }

  ClientId ClientOf(int n) {
    const NodeKey key = cluster_.node(n)->key();
    const auto found = clients_.find(key);
    if (found != clients_.end()) return found->second;
    return clients_[key] = cluster_.store(n)->OpenClient();
  }

  void StartRound(int n) {
    Round round;
    round.number = rounds_.size();
    const std::string name = absl::StrCat("round ", round.number);
    round.target = ObjectId::FromName("target", name);
    std::vector<int> nodes;
    for (int node = 0; node < cluster_.num_nodes(); ++node) nodes.push_back(node);
    for (size_t i = nodes.size(); i > 1; --i) std::swap(nodes[i - 1], nodes[random_.Below(i)]);
    for (int source = 0; source < plan_.sources; ++source) {
      round.sources.push_back(ObjectId::FromName(name, absl::StrCat(source)));
      round.homes.push_back(nodes[static_cast<size_t>(source)]);
    }
    if (random_.Chance(plan_.shared)) round.homes.back() = round.homes.front();
    round.puts.assign(round.sources.size(), 0);
    round.put_at.assign(round.sources.size(), Instant());
    rounds_.push_back(std::move(round));
    const size_t number = rounds_.size() - 1;
    for (int source = 0; source < plan_.sources; ++source) {
      const bool late = random_.Chance(plan_.late);
      const absl::Duration delay = late ? plan_.mean_pause * 10 * random_.Unit() : absl::Duration();
      cluster_.scheduler().After(delay, [this, number, source] {
        OnNode(rounds_[number].homes[static_cast<size_t>(source)],
               [this, number, source](int node) { Put(node, number, source); });
      });
    }
    Reduce(n, number);
    if (number >= plan_.kept) Free(n, number - plan_.kept);
  }

  OrderedFloats FloatsOf(const Round& round) const {
    return {plan_.seed * 1000 + round.number, plan_.sources, plan_.elements};
  }

  void Put(int n, size_t number, int source) {
    Round& round = rounds_[number];
    if (round.freed) return;
    ++round.puts[static_cast<size_t>(source)];
    round.put_at[static_cast<size_t>(source)] = now();
    object_store::PutOptions options;
    options.id = round.sources[static_cast<size_t>(source)];
    options.deadline = cluster_.NowAt(n) + kPutPatience;
    cluster_.journal().Note(NodeName(n), " puts source ", source, " of ", NameOf(round));
    cluster_.store(n)->Put(
        ClientOf(n), options, FloatsOf(round).Source(source),
        [this, n, number, id = options.id](const absl::StatusOr<object_store::PutResult>& put) {
          if (put.ok() && rounds_[number].freed) Delete(n, id);
        });
  }

  // A source that may be missing, as a task that begins again puts it.
  void PutAny(int n, size_t number) {
    const int source = static_cast<int>(random_.Below(static_cast<uint64_t>(plan_.sources)));
    const ObjectId& id = rounds_[number].sources[static_cast<size_t>(source)];
    if (cluster_.Describe(id).summary().complete_copies() == 0) Put(n, number, source);
  }

  void Fetch(int n, size_t number) {
    Round& round = rounds_[number];
    round.copied = true;
    object_store::GetOptions options;
    options.id = round.sources[random_.Below(round.sources.size())];
    options.deadline = cluster_.NowAt(n) + absl::Seconds(5);
    object_store::GetEvents events;
    events.on_view = [this, n, client = ClientOf(n)](const absl::StatusOr<View>& view) {
      if (view.ok()) cluster_.store(n)->Release(client, view->pin).IgnoreError();
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  ReduceSpec SpecOf(const Round& round) const {
    ReduceSpec spec;
    spec.sources = round.sources;
    spec.elements = DType::kF32;
    spec.op = ReduceOp::kSum;
    spec.order = ReduceSpec::Order::kRing;
    return spec;
  }

  void Reduce(int n, size_t number) {
    Round& round = rounds_[number];
    // What was taken back is not asked for again.
    if (round.taken_back || round.freed) return;
    ReduceTarget target{round.target};
    target.root_here = false;
    const absl::Duration timeout = AnyTimeout();
    const size_t index = round.calls.size();
    round.calls.push_back({cluster_.node(n)->key(), now(), now() + timeout});
    cluster_.journal().Note(NodeName(n), " reduces ", NameOf(round));
    cluster_.node(n)->reducer().Reduce(ClientOf(n), target, SpecOf(round),
                                       cluster_.NowAt(n) + timeout,
                                       [this, n, number, index](const absl::Status& status) {
                                         Reduced(n, number, index, status);
                                       });
  }

  void Reduced(int n, size_t number, size_t index, const absl::Status& status) {
    Round& round = rounds_[number];
    Call& call = round.calls[index];
    End(call, status);
    cluster_.journal().Note("the reduction of ", NameOf(round), " returned ", status.ToString());
    if (status.ok() && round.freed) return Delete(n, round.target);
    if (status.ok()) return Get(n, number, AnyTimeout(), /*must=*/false);
    if (round.freed || absl::IsDeadlineExceeded(status)) return;
    if (random_.Chance(0.6)) TakeBack(n, round);
    ReduceSlices(n, number);
  }

  // With faults a stalled node answers late.
  void End(Call& call, const absl::Status& status) {
    call.ended = true;
    call.status = status;
    call.at = now();
    if (now() > call.deadline + kLate && plan_.world.cluster.peaceful) {
      cluster_.journal().Violation("a call outlived its deadline");
    }
  }

  // As ps::internal::ServerObjects::Void does.
  void TakeBack(int n, Round& round) {
    cluster_.journal().Note(NodeName(n), " takes back ", NameOf(round));
    round.deleted = true;
    round.taken_back = true;
    round.taken_back_at = now();
    Delete(n, round.target);
    cluster_.node(n)->reducer().Fail(ClientOf(n), round.target, absl::NotFoundError("taken back"),
                                     Instant::Infinite(), [](const absl::Status&) {});
  }

  // As ps::internal::ServerObjects::BeginSlices does.
  void ReduceSlices(int n, size_t number) {
    Round& round = rounds_[number];
    const auto slices =
        ps::internal::RingSlices(FloatsOf(round).bytes(), static_cast<size_t>(plan_.sources));
    for (size_t i = 0; i < slices.size(); ++i) {
      ReduceSpec spec = SpecOf(round);
      spec.order = ReduceSpec::Order::kFixed;
      spec.range_offset = slices[i].begin;
      spec.range_bytes = slices[i].bytes;
      for (size_t k = 0; k < slices[i].sources.size(); ++k) {
        spec.sources[k] = round.sources[slices[i].sources[k]];
      }
      if (round.slices.size() <= i) {
        round.slices.push_back(
            {ObjectId::FromName("slice", absl::StrCat(round.number, " ", i)), i});
      }
      const size_t index = round.slice_calls.size();
      round.slice_calls.push_back({cluster_.node(n)->key(), now()});
      round.slice_calls[index].request = cluster_.node(n)->reducer().Reduce(
          ClientOf(n), ReduceTarget{round.slices[i].target}, spec, Instant::Infinite(),
          [this, n, number, i, index](const absl::Status& status) {
            Round& reduced = rounds_[number];
            End(reduced.slice_calls[index], status);
            cluster_.journal().Note("slice ", i, " of ", NameOf(reduced), " returned ",
                                    status.ToString());
            if (!status.ok()) return;
            reduced.freed ? Delete(n, reduced.slices[i].target) : GetSlice(n, number, i);
          });
    }
  }

  void Delete(int n, const ObjectId& id) {
    cluster_.store(n)->Delete(ClientOf(n), id, cluster_.NowAt(n) + absl::Seconds(20),
                              [](const absl::Status&) {});
  }

  // The calls for the round that have not ended are given up, each in its own node: so its shard
  // hears of the Delete behind the request.
  void GiveUp(size_t number) {
    Round& round = rounds_[number];
    for (size_t i = 0; i < round.calls.size(); ++i) {
      if (Waits(round.calls[i]))
        GiveUp(round.calls[i].node, number, &Round::calls, i, round.target);
    }
    for (size_t i = 0; i < round.slice_calls.size(); ++i) {
      if (!Waits(round.slice_calls[i])) continue;
      const ObjectId& target = round.slices[i % round.slices.size()].target;
      GiveUp(round.slice_calls[i].node, number, &Round::slice_calls, i, target);
    }
  }

  void GiveUp(const NodeKey& node, size_t number, std::vector<Call> Round::*calls, size_t index,
              const ObjectId& target) {
    OnNode(cluster_.FindNode(node), [this, number, calls, index, target](int n) {
      Call& call = (rounds_[number].*calls)[index];
      if (call.ended) return;
      call.ended = call.given_up = true;
      call.at = now();
      cluster_.node(n)->reducer().Cancel(ClientOf(n), call.request);
      Delete(n, target);
    });
  }

  // No client uses the objects of the round any more.
  void Free(int n, size_t number) {
    Round& round = rounds_[number];
    round.freed = round.deleted = round.source_deleted = true;
    GiveUp(number);
    Delete(n, round.target);
    for (const ObjectId& source : round.sources) Delete(n, source);
    for (const Slice& slice : round.slices) Delete(n, slice.target);
  }

  void Get(int n, size_t number, absl::Duration timeout, bool must) {
    Round& round = rounds_[number];
    object_store::GetOptions options;
    options.id = round.target;
    options.deadline = cluster_.NowAt(n) + timeout;
    if (must) ++probes_open_;
    std::optional<size_t> wait;
    // Only what was there when its version was taken back is sure to end.
    if (timeout == absl::InfiniteDuration() && !round.taken_back) {
      wait = round.waits.size();
      round.waits.push_back({cluster_.node(n)->key(), now()});
    }
    object_store::GetEvents events;
    events.on_view = [this, n, number, must, wait,
                      client = ClientOf(n)](const absl::StatusOr<View>& view) {
      if (must) --probes_open_;
      if (wait.has_value()) End(rounds_[number].waits[*wait], view.status());
      if (view.ok()) {
        CheckResult(rounds_[number], *view);
        cluster_.store(n)->Release(client, view->pin).IgnoreError();
      } else if (must && !absl::IsResourceExhausted(view.status())) {
        cluster_.journal().Violation(absl::StrCat(NodeName(n), " got ", view.status().ToString(),
                                                  " for ", NameOf(rounds_[number])));
      }
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  void GetSlice(int n, size_t number, size_t slice) {
    object_store::GetOptions options;
    options.id = rounds_[number].slices[slice].target;
    options.deadline = cluster_.NowAt(n) + absl::Seconds(5);
    object_store::GetEvents events;
    events.on_view = [this, n, number, slice,
                      client = ClientOf(n)](const absl::StatusOr<View>& view) {
      if (!view.ok()) return;
      CheckSlice(rounds_[number], slice, *view);
      cluster_.store(n)->Release(client, view->pin).IgnoreError();
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  // ---- checks of results

  const std::string& SumOf(Round& round) {
    if (round.sum.empty()) round.sum = FloatsOf(round).RingSum();
    return round.sum;
  }

  void CheckResult(Round& round, const View& view) {
    ++from_rings_;
    const auto wrong = [this, &round](const auto&... what) {
      cluster_.journal().Violation(absl::StrCat("the result of ", NameOf(round), " ", what...));
    };
    const int slices = view.buffer->layout().slices;
    if (slices != plan_.sources) return wrong("is in ", slices, " slices");
    if (view.reduced_from != Ids(round.sources)) return wrong("has other sources");
    if (!HasBytes(view, SumOf(round))) return wrong("has other bits");
    const bool first = round.seen.insert(view.generation).second;
    if (first && round.seen.size() > 1 && plan_.world.cluster.peaceful && !round.deleted) {
      wrong("was made twice");
    }
  }

  // By the definition, not by RingSlices.
  void CheckSlice(Round& round, size_t slice, const View& view) {
    ++from_slices_;
    const auto wrong = [this, &round, slice](const auto&... what) {
      cluster_.journal().Violation(
          absl::StrCat("slice ", slice, " of ", NameOf(round), " ", what...));
    };
    std::vector<ObjectId> order = round.sources;
    std::rotate(order.begin(),
                order.begin() + static_cast<std::ptrdiff_t>(slice + 1) % plan_.sources,
                order.end());
    if (view.reduced_from != Ids(order)) return wrong("has other sources");
    const SliceLayout layout{FloatsOf(round).bytes(), plan_.sources};
    const int of = static_cast<int>(slice);
    const absl::string_view sum = SumOf(round);
    if (!HasBytes(view, sum.substr(layout.Begin(of), layout.Size(of)))) {
      return wrong("has other bits");
    }
  }

  bool HasBytes(const View& view, absl::string_view bytes) {
    bytes_checked_ += bytes.size();
    // The memory of all slices is contiguous.
    return bytes ==
           absl::string_view(view.buffer->slice(0).data(), view.buffer->layout().object_bytes);
  }

  static std::string Ids(const std::vector<ObjectId>& ids) {
    std::string all;
    for (const ObjectId& id : ids) {
      all.append(reinterpret_cast<const char*>(id.binary().data()), ObjectId::kSize);
    }
    return all;
  }

  std::string NameOf(const Round& round) const {
    std::string homes;
    for (const int home : round.homes) absl::StrAppend(&homes, homes.empty() ? "" : " ", home);
    return absl::StrCat("round ", round.number, " of nodes ", homes);
  }

  void FillResult(SimulationResult& result) override {
    result.operations = rounds_.size();
    result.bytes_checked = bytes_checked_;
    result.from_rings = from_rings_;
    result.from_slices = from_slices_;
  }

  const RingPlanOfRun& plan_;
  std::vector<Round> rounds_;
  std::map<NodeKey, ClientId> clients_;
  int probes_open_ = 0;
  uint64_t bytes_checked_ = 0;
  uint64_t from_rings_ = 0;
  uint64_t from_slices_ = 0;
};

}  // namespace

RingPlanOfRun DrawRingPlan(uint64_t seed, bool peace) {
  RingPlanOfRun plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 151 + 5);
  ClusterOptions& cluster = plan.world.cluster;
  cluster.nodes = static_cast<int>(3 + random.Below(3));
  plan.sources = 3 + static_cast<int>(random.Below(static_cast<uint64_t>(cluster.nodes - 2)));
  // From slices that are too small; some end with a slice of another size.
  constexpr uint64_t kElements[] = {3000, 10'000, 20'001, 60'000, 60'007};
  plan.elements = kElements[random.Below(5)];
  plan.mean_pause = absl::Milliseconds(40 + random.Below(120));
  plan.shared = random.Chance(0.5) ? 0.2 : 0;
  plan.late = random.Unit() * 0.6;
  plan.copies = random.Chance(0.3) ? 0.2 : 0;
  cluster.zones = random.Chance(0.1) ? 2 : 0;
  cluster.allocation_failures = 0;
  cluster.capacity_bytes = 64 << 20;
  // Memory for most of what there is, mostly of larger objects.
  if (random.Chance(0.2) && !peace) {
    plan.kept = 2;
    plan.elements = std::max<uint64_t>(plan.elements, 20'001);
    cluster.capacity_bytes = 11 * (plan.elements * sizeof(float) + 4096);
  }
  if (!random.Chance(0.3)) plan.world.faults.weights[static_cast<size_t>(Fault::kMemory)] = 0;
  // Links that carry all reductions of a run for minutes would starve the sessions on them.
  SimFabric::Options& fabric = cluster.fabric;
  if (fabric.link.bytes_per_second > 0) {
    fabric.link.bytes_per_second = std::max(fabric.link.bytes_per_second, 4e7);
  }
  if (fabric.interface_bytes_per_second > 0) {
    fabric.interface_bytes_per_second = std::max(fabric.interface_bytes_per_second, 4e7);
  }
  // The folds of slices that wait for each other hold what they are sent in: with fewer of these
  // than there are slices under way, all could wait.
  cluster.data_plane.max_pushes = std::max(cluster.data_plane.max_pushes, 256);
  // A shard makes no ring in its first lease.
  plan.world.storm += cluster.lease;
  return plan;
}

std::string Describe(const RingPlanOfRun& plan) {
  return absl::StrCat(plan.sources, " sources of ", plan.elements, " floats, ", plan.shared,
                      " at one node, ", plan.late, " late, ", plan.copies, " copied",
                      plan.tight() ? ", little memory; " : "; ", Describe(plan.world));
}

SimulationResult RunRingSimulation(const RingPlanOfRun& plan) { return RingSimulation(plan).Run(); }

}  // namespace phalanx::sim
