#include "src/sim/workloads/reduce_simulation.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/directory/core/validate.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using object_store::View;

// The tolerance for a call's deadline.
constexpr absl::Duration kLate = absl::Seconds(1);

// The width of the attempt's number in its first element. Each source has its own position, so a
// sum shows which attempts were summed.
constexpr int kAttemptBits = 9;
constexpr uint64_t kMaxAttempts = (uint64_t{1} << kAttemptBits) - 1;
static_assert(kMaxSimulatedSources * kAttemptBits <= 64);

// Element `i` of an attempt at a source: SplitMix64 of all three, except for i = 0.
uint64_t Element(int source, uint64_t attempt, uint64_t i) {
  if (i == 0) return attempt << (kAttemptBits * source);
  uint64_t z = (static_cast<uint64_t>(source) << 48) + (attempt << 32) + i + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The metadata that requests name if sources must be alike.
constexpr absl::string_view kAlike = "alike";

// The metadata of an attempt; some have none.
std::string MetadataOf(int source, uint64_t attempt, bool alike) {
  if ((static_cast<uint64_t>(source) + attempt) % 4 == 0) return "";
  return alike ? std::string(kAlike) : absl::StrCat("attempt ", attempt, " at ", source);
}

// The number of additions that are tried for each open reduction.
constexpr int kAdditions = 6;

class ReduceSimulation final : public ClientSimulation {
 public:
  explicit ReduceSimulation(const ReducePlanOfRun& plan)
      : ClientSimulation(plan.world,
                         {.mean_pause = plan.mean_pause, .sample_every = plan.world.sample_every},
                         Random(plan.seed * 107 + 3), Random(plan.seed * 109 + 4)),
        plan_(plan) {
    for (int i = 0; i < plan.sources; ++i) {
      sources_.push_back({ObjectId::FromName("source", absl::StrCat(i)), 0});
    }
  }

 private:
  struct Source {
    ObjectId id;
    uint64_t attempts = 0;
    bool deleted = false;  // at any time in the run
  };
  struct Call {
    NodeKey node;
    Instant deadline = Instant::Infinite();
    bool ended = false;
    absl::Status status;
    Instant began;
    bool dropped = false;  // its client died
  };
  // An addition to an open reduction: of a source, or kClosing for its close.
  static constexpr int kClosing = -1;
  struct Addition {
    int source = kClosing;
    bool refused = false;  // NotFound: no such reduction exists or existed
  };
  struct Round {
    ObjectId target;
    ObjectName name;
    std::vector<int> sources;
    std::vector<int> added;  // to an open reduction
    // The added sources that were acknowledged before any call had ended; with the adder's node.
    std::vector<std::pair<int, NodeKey>> acknowledged;
    std::vector<Addition> additions;
    // The sources in its results that are not among `sources`; and kClosing if there is a result,
    // because an open reduction must be closed before it has one.
    std::set<int> carried_out;
    uint32_t num_objects = 0;
    ElementTypes elements = DType::kU64;
    bool open = false;
    bool fixed = false;
    bool everybody = false;
    bool ring = false;  // in the order of one
    bool deleted = false;
    std::vector<Call> calls;
    // The nodes whose clients have requested it, or tried to add to it, and live.
    std::set<NodeKey> openers;
    // By generation of the target: the first element that readers saw.
    std::map<Generation, uint64_t> seen;
  };

  // ---- phases

  void Settle() override {
    // The shards need a lease to recover, and open reductions are closed only after it. A request
    // that was made in the storm opens one when it reaches its shard: no task closes that one
    // later.
    AwaitSessions();
    for (const Round& round : rounds_) CheckAbandoned(round);
    for (size_t i = 0; i < rounds_.size(); ++i) {
      if (rounds_[i].open) OnNode(0, [this, i](int n) { Extend(n, i, kClosing); });
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      OnNode(0, [this, i](int n) { PutIfMissing(n, static_cast<int>(i)); });
    }
    Await("for reductions to end", [this] { return CallsEnded(); });
    for (const Round& round : rounds_) CheckEnds(round);
    for (const Round& round : rounds_) CheckName(round);
    Probe();
  }

  absl::Status CallsEnded() {
    for (const Round& round : rounds_) {
      for (const Call& call : round.calls) {
        if (call.ended || call.dropped || cluster_.FindNode(call.node) < 0) continue;
        return absl::UnavailableError(
            absl::StrCat("the reduction of ", NameOf(round),
                         " has not ended: ", cluster_.Describe(round.target).ShortDebugString()));
      }
    }
    return absl::OkStatus();
  }

  bool SourceDeleted(const Round& round) const {
    const auto deleted = [this](int source) {
      return sources_[static_cast<size_t>(source)].deleted;
    };
    return std::any_of(round.sources.begin(), round.sources.end(), deleted) ||
           std::any_of(round.added.begin(), round.added.end(), deleted);
  }

  // Checks that an error to a caller has a cause in the run.
  void CheckEnds(const Round& round) {
    for (const Call& call : round.calls) {
      if (!call.ended || call.status.ok()) continue;
      const bool explained =
          (absl::IsNotFound(call.status) && (round.deleted || SourceDeleted(round))) ||
          (absl::IsDeadlineExceeded(call.status) && !call.deadline.infinite()) ||
          (absl::IsAlreadyExists(call.status) && round.open) ||
          (absl::IsInvalidArgument(call.status) && plan_.alike) ||
          (absl::IsFailedPrecondition(call.status) && round.ring) ||
          (absl::IsCancelled(call.status) && round.open && !plan_.world.cluster.peaceful) ||
          (absl::IsDataLoss(call.status) && round.open && !plan_.world.cluster.peaceful) ||
          (absl::IsUnavailable(call.status) && !plan_.world.cluster.peaceful) ||
          (absl::IsResourceExhausted(call.status) && !plan_.world.cluster.peaceful);
      if (explained) continue;
      cluster_.journal().Violation(
          absl::StrCat("the reduction of ", NameOf(round), " ended with ", call.status.ToString()));
    }
  }

  // Every request for the target has its name.
  void CheckName(const Round& round) {
    const v1::ObjectSummary summary = cluster_.Describe(round.target).summary();
    if (!summary.has_generation() || summary.deleted()) return;
    const ObjectName name = directory::NameOf(summary);
    if (name == round.name) return;
    cluster_.journal().Violation(
        absl::StrCat("the result of ", NameOf(round), " has the name \"", name.ToString(), "\""));
  }

  // No client is left that could close the reduction, and none has tried to: it has ended.
  void CheckAbandoned(const Round& round) {
    const auto closes = [](const Addition& one) { return one.source == kClosing; };
    const bool lives =
        std::any_of(round.openers.begin(), round.openers.end(),
                    [this](const NodeKey& key) { return cluster_.FindNode(key) >= 0; });
    if (!round.open || lives || std::any_of(round.additions.begin(), round.additions.end(), closes))
      return;
    const v1::DescribeObjectResponse known = cluster_.Describe(round.target);
    if (!known.has_reduction()) return;
    cluster_.journal().Violation(absl::StrCat("no client is left that can close ", NameOf(round),
                                              ", which is open: ", known.ShortDebugString()));
  }

  // An open reduction ended for want of clients. No client that has long waited for it can have
  // been in touch with its shard, nor can this caller.
  void CheckCancelled(const Round& round, const Call& cancelled) {
    const int shard = cluster_.ShardOf(round.target);
    const Instant long_ago = now() - plan_.world.cluster.lease * 3;
    const auto in_touch = [this, shard](const Call& call) {
      const int n = cluster_.FindNode(call.node);
      return n >= 0 && cluster_.Undisturbed(n, shard, call.began);
    };
    if (cluster_.last_shard_start(shard) > long_ago || !in_touch(cancelled)) return;
    for (const Call& call : round.calls) {
      const bool waits = !call.ended && !call.dropped && call.began < long_ago && in_touch(call);
      if (!waits) continue;
      cluster_.journal().Violation(
          absl::StrCat(NameOf(round), " ended for want of clients, but one still waited for it"));
    }
  }

  void Probe() {
    if (failed()) return;
    cluster_.journal().Note("---- probe");
    std::vector<size_t> promised;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      const Round& round = rounds_[i];
      const bool ok = std::any_of(round.calls.begin(), round.calls.end(), [this](const Call& c) {
        return c.ended && c.status.ok() && cluster_.FindNode(c.node) >= 0;
      });
      if (ok && !round.deleted) promised.push_back(i);
    }
    for (const size_t i : promised) {
      // The last copy can have died with its node after the call was answered.
      if (cluster_.Describe(rounds_[i].target).summary().complete_copies() == 0) continue;
      for (int n = 0; n < cluster_.num_nodes(); ++n) {
        OnNode(n, [this, i](int node) { Get(node, i, absl::Seconds(30), /*must=*/true); });
      }
      OnNode(0, [this, i](int node) { RequestOtherOperation(node, i); });
    }
    RunFor(absl::Milliseconds(100));
    Await("to have probed", [this] {
      return probes_open_ == 0 ? absl::OkStatus()
                               : absl::UnavailableError(absl::StrCat(probes_open_, " calls wait"));
    });
  }

  void CleanUp() override {
    OnNode(0, [this](int n) {
      for (const Round& round : rounds_) Delete(n, round.target);
      for (const Source& source : sources_) Delete(n, source.id);
    });
    RunFor(absl::Seconds(1));
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      OnNode(n, [this](int node) {
        const NodeKey key = cluster_.node(node)->key();
        const auto client = clients_.find(key);
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
      if (stats.folds != 0 || stats.scratch_bytes != 0 || stats.waiting != 0) {
        return absl::UnavailableError(absl::StrCat(NodeName(n), ": ", stats.folds, " folds, ",
                                                   stats.scratch_bytes, " bytes of theirs, ",
                                                   stats.waiting, " calls"));
      }
    }
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      v1::GetStatusResponse status;
      cluster_.shard(s)->FillStatus(&status);
      if (status.reductions() != 0) {
        return absl::UnavailableError(
            absl::StrCat(ShardName(s), ": ", status.reductions(), " reductions"));
      }
    }
    return absl::OkStatus();
  }

  // ---- acts of clients; each on the node's control loop

  void Act(int n) override {
    if (plan_.deaths > 0 && random_.Chance(plan_.deaths)) return KillClient(n);
    if (plan_.copies > 0 && random_.Chance(plan_.copies)) return FetchSource(n);
    const double choice = random_.Unit();
    if (choice < 0.35) {
      Put(n, SourceFor(n));
    } else if (choice < 0.5) {
      StartReduction(n);
    } else if (choice < 0.6 && !rounds_.empty()) {
      Reduce(n, AnyRound());
    } else if (choice < 0.9 && !rounds_.empty()) {
      Get(n, AnyRound(), AnyTimeout(), /*must=*/false);
    } else if (choice < 0.93 && !rounds_.empty()) {
      AddOrClose(n, AnyRound());
    } else if (choice < 0.96 && !rounds_.empty()) {
      Round& round = rounds_[AnyRound()];
      round.deleted = true;
      Delete(n, round.target);
    } else if (choice < 0.97) {
      Source& source = sources_[random_.Below(sources_.size())];
      source.deleted = true;
      Delete(n, source.id);
    }
  }

  // If all nodes want the result, each node mostly puts its own source, as tasks do.
  int SourceFor(int n) {
    const int any = static_cast<int>(random_.Below(sources_.size()));
    if (!plan_.everybody || random_.Chance(0.1)) return any;
    return n < static_cast<int>(sources_.size()) ? n : any;
  }

  // One of the most recent rounds.
  size_t AnyRound() {
    const size_t last = std::min<size_t>(rounds_.size(), 4);
    return rounds_.size() - 1 - random_.Below(last);
  }
  absl::Duration AnyTimeout() {
    return random_.Chance(0.5) ? absl::InfiniteDuration() : absl::Seconds(5) * random_.Unit();
  }

  ClientId ClientOf(int n) {
    const NodeKey key = cluster_.node(n)->key();
    const auto found = clients_.find(key);
    if (found != clients_.end()) return found->second;
    return clients_[key] = cluster_.store(n)->OpenClient();
  }

  void KillClient(int n) {
    const NodeKey key = cluster_.node(n)->key();
    const auto client = clients_.find(key);
    if (client == clients_.end()) return;
    cluster_.journal().Note("the client of ", NodeName(n), " dies");
    cluster_.node(n)->reducer().ClientClosed(client->second);
    cluster_.store(n)->CloseClient(client->second, /*clean=*/false);
    clients_.erase(client);
    for (Round& round : rounds_) {
      round.openers.erase(key);
      // Without it the reduction can have ended, with what it added.
      std::erase_if(round.acknowledged, [&key](const auto& one) { return one.second == key; });
      for (Call& call : round.calls) call.dropped = call.dropped || call.node == key;
    }
  }

  void Put(int n, int number) {
    Source& source = sources_[static_cast<size_t>(number)];
    // The attempt's number has a fixed width in the first element.
    if (source.attempts == kMaxAttempts) return;
    const uint64_t attempt = ++source.attempts;
    std::string bytes(plan_.elements * sizeof(uint64_t), '\0');
    for (uint64_t i = 0; i < plan_.elements; ++i) {
      const uint64_t element = Element(number, attempt, i);
      std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
    }
    object_store::PutOptions options;
    options.id = source.id;
    options.metadata = MetadataOf(number, attempt, plan_.alike);
    options.deadline = cluster_.NowAt(n) + absl::Seconds(5);
    cluster_.journal().Note(NodeName(n), " puts source ", number, " attempt ", attempt);
    cluster_.store(n)->Put(ClientOf(n), options, std::move(bytes),
                           [](absl::StatusOr<object_store::PutResult>) {});
  }

  void FetchSource(int n) {
    object_store::GetOptions options;
    options.id = sources_[random_.Below(sources_.size())].id;
    options.deadline = cluster_.NowAt(n) + absl::Seconds(5);
    object_store::GetEvents events;
    events.on_view = [this, n, client = ClientOf(n)](absl::StatusOr<View> view) {
      if (view.ok()) cluster_.store(n)->Release(client, view->pin).IgnoreError();
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  void PutIfMissing(int n, int number) {
    const ObjectId& id = sources_[static_cast<size_t>(number)].id;
    if (cluster_.Describe(id).summary().complete_copies() == 0) Put(n, number);
  }

  void StartReduction(int n) {
    Round round;
    round.name = ObjectName::Of("target", absl::StrCat(rounds_.size()));
    round.target = ObjectId::FromName("target", round.name.name());
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (random_.Chance(0.7)) round.sources.push_back(static_cast<int>(i));
    }
    if (round.sources.empty()) round.sources.push_back(0);
    // The second half has elements of half the size. Their carries are dropped.
    const uint64_t bytes = plan_.elements * sizeof(uint64_t);
    const uint64_t half = bytes / 2 / kElementRunAlignment * kElementRunAlignment;
    if (half > 0 && rounds_.size() % 2 == 1) {
      round.elements = ElementTypes(DType::kU64, {{half, DType::kU64}, {bytes, DType::kU32}});
    }
    round.fixed = random_.Chance(0.2);
    round.open = random_.Chance(plan_.open);
    if (random_.Chance(0.3)) {
      round.num_objects = static_cast<uint32_t>(1 + random_.Below(round.sources.size()));
    }
    if (plan_.everybody && random_.Chance(0.7)) {
      // Rings need all sources, arrival order, and a closed reduction.
      round.everybody = true;
      round.ring = plan_.rings > 0 && random_.Chance(plan_.rings);
      round.fixed = false;
      round.open = false;
      round.num_objects = 0;
      round.sources.clear();
      for (size_t i = 0; i < sources_.size(); ++i) round.sources.push_back(static_cast<int>(i));
    }
    rounds_.push_back(std::move(round));
    Reduce(n, rounds_.size() - 1);
    if (!rounds_.back().open) return;
    const size_t number = rounds_.size() - 1;
    for (int i = 0; i < kAdditions; ++i) {
      RunSoon([this, number](int node) { Add(node, number); });
    }
    if (plan_.closed_soon) RunSoon([this, number](int node) { Extend(node, number, kClosing); });
  }

  ReduceSpec SpecFor(const Round& round) const {
    ReduceSpec spec;
    for (const int source : round.sources) {
      spec.sources.push_back(sources_[static_cast<size_t>(source)].id);
    }
    spec.elements = round.elements;
    spec.op = ReduceOp::kSum;
    if (round.fixed) spec.order = ReduceSpec::Order::kFixed;
    if (round.ring) spec.order = ReduceSpec::Order::kRing;
    spec.open = round.open;
    spec.num_objects = round.num_objects;
    if (plan_.alike) spec.source_metadata = std::string(kAlike);
    return spec;
  }

  // The target has a result, so a request with another operation must fail.
  void RequestOtherOperation(int n, size_t number) {
    ReduceSpec spec = SpecFor(rounds_[number]);
    spec.op = ReduceOp::kMax;
    const Instant deadline = cluster_.NowAt(n) + absl::Seconds(30);
    ++probes_open_;
    cluster_.node(n)->reducer().Reduce(
        ClientOf(n), {rounds_[number].target}, std::move(spec), deadline,
        [this, number](const absl::Status& status) {
          --probes_open_;
          if (absl::IsAlreadyExists(status)) return;
          cluster_.journal().Violation(absl::StrCat("a request for another operation on ",
                                                    NameOf(rounds_[number]), " returned ",
                                                    status.ToString()));
        });
  }

  void Reduce(int n, size_t number) {
    Round& round = rounds_[number];
    ReduceTarget target{round.target};
    target.root_here = random_.Chance(0.7) && !round.everybody;
    target.everybody = round.everybody;
    target.name = round.name;
    const absl::Duration timeout = AnyTimeout();
    const Instant deadline = cluster_.NowAt(n) + timeout;
    const size_t index = round.calls.size();
    round.calls.push_back(
        {cluster_.node(n)->key(), now() + timeout, /*ended=*/false, /*status=*/{}, now()});
    round.openers.insert(cluster_.node(n)->key());
    cluster_.journal().Note(NodeName(n), " reduces ", NameOf(round));
    cluster_.node(n)->reducer().Reduce(
        ClientOf(n), target, SpecFor(round), deadline,
        [this, number, index](const absl::Status& status) {
          Call& ended = rounds_[number].calls[index];
          ended.ended = true;
          ended.status = status;
          cluster_.journal().Note("reduction of ", NameOf(rounds_[number]), " returned ",
                                  status.ToString());
          if (absl::IsCancelled(status)) CheckCancelled(rounds_[number], ended);
          // With faults a stalled node answers late.
          if (cluster_.scheduler().now() > ended.deadline + kLate && plan_.world.cluster.peaceful) {
            cluster_.journal().Violation("a call outlived its deadline");
          }
        });
  }

  void AddOrClose(int n, size_t number) {
    if (!rounds_[number].open) return;
    if (random_.Chance(0.5)) return Add(n, number);
    Extend(n, number, kClosing);
  }

  // Runs `act` soon, on a random node, while the reduction is open.
  void RunSoon(std::function<void(int)> act) {
    cluster_.scheduler().After(plan_.mean_pause * 4 * random_.Unit(), [this, act] {
      const int n = static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.num_nodes())));
      if (running_) OnNode(n, act);
    });
  }

  void Add(int n, size_t number) {
    Round& round = rounds_[number];
    const int source = static_cast<int>(random_.Below(sources_.size()));
    const auto& given = round.sources;
    if (std::find(given.begin(), given.end(), source) != given.end()) return;
    round.added.push_back(source);
    Extend(n, number, source);
  }

  void Extend(int n, size_t number, int source) {
    Round& round = rounds_[number];
    const bool close = source == kClosing;
    std::vector<ObjectId> sources;
    if (!close) sources.push_back(sources_[static_cast<size_t>(source)].id);
    const size_t index = round.additions.size();
    round.additions.push_back({source});
    if (!close) round.openers.insert(cluster_.node(n)->key());
    cluster_.node(n)->reducer().Extend(
        ClientOf(n), round.target, std::move(sources), close, cluster_.NowAt(n) + absl::Seconds(5),
        [this, number, index, node = cluster_.node(n)->key()](const absl::Status& status) {
          Round& added_to = rounds_[number];
          Addition& addition = added_to.additions[index];
          const bool closing = addition.source == kClosing;
          addition.refused = absl::IsNotFound(status);
          if (status.ok() && !closing) Acknowledge(added_to, addition.source, node);
          cluster_.journal().Note(closing ? "closing " : "adding to ",
                                  cluster_.history().NameOf(added_to.target), " returned ",
                                  status.ToString());
          CheckRefused(added_to);
        });
  }

  static void Acknowledge(Round& round, int source, const NodeKey& node) {
    // After the first call has ended, a repeated reduction need not know of this addition.
    const bool first = std::none_of(round.calls.begin(), round.calls.end(),
                                    [](const Call& call) { return call.ended; });
    if (first) round.acknowledged.emplace_back(source, node);
  }

  void Delete(int n, const ObjectId& id) {
    cluster_.store(n)->Delete(ClientOf(n), id, cluster_.NowAt(n) + absl::Seconds(20),
                              [](const absl::Status&) {});
  }

  void Get(int n, size_t number, absl::Duration timeout, bool must) {
    object_store::GetOptions options;
    options.id = rounds_[number].target;
    options.deadline = cluster_.NowAt(n) + timeout;
    object_store::GetEvents events;
    if (must) ++probes_open_;
    events.on_view = [this, n, number, must, client = ClientOf(n)](absl::StatusOr<View> view) {
      if (must) --probes_open_;
      if (!view.ok()) {
        if (must && !absl::IsResourceExhausted(view.status())) {
          cluster_.journal().Violation(absl::StrCat(NodeName(n), " got ", view.status().ToString(),
                                                    " for ", NameOf(rounds_[number])));
        }
        return;
      }
      CheckView(rounds_[number], *view);
      cluster_.store(n)->Release(client, view->pin).IgnoreError();
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  // ---- checks of results

  void CheckView(Round& round, const View& view) {
    // The memory of all slices is contiguous.
    const absl::Span<char> bytes(view.buffer->slice(0).data(), view.buffer->layout().object_bytes);
    bytes_checked_ += bytes.size();
    const bool from_ring = view.buffer->layout().slices > 1;
    if (from_ring) ++from_rings_;
    const auto wrong = [this, &round](const auto&... what) {
      cluster_.journal().Violation(absl::StrCat("the result of ", NameOf(round), " ", what...));
    };
    if (bytes.size() != plan_.elements * sizeof(uint64_t)) {
      return wrong("has ", bytes.size(), " bytes");
    }
    if (round.ring && !from_ring) return wrong("was made by a tree");
    std::vector<uint64_t> elements(plan_.elements);
    std::memcpy(elements.data(), bytes.data(), bytes.size());
    std::vector<int> from;
    for (absl::string_view ids = view.reduced_from; !ids.empty();
         ids.remove_prefix(std::min(ids.size(), ObjectId::kSize))) {
      const int source = NumberOf(ids.substr(0, ObjectId::kSize));
      if (source < 0) return wrong("lists an unknown source");
      from.push_back(source);
    }
    const std::set<int> distinct(from.begin(), from.end());
    // Each source must be in the sum once, even if a fold was repeated.
    if (distinct.size() != from.size()) return wrong("has a source twice");
    std::set<int> allowed(round.sources.begin(), round.sources.end());
    allowed.insert(round.added.begin(), round.added.end());
    for (const int source : from) {
      if (!allowed.contains(source))
        return wrong("has source ", source, ", which is not in the request");
    }
    const size_t least = round.num_objects != 0 ? round.num_objects : round.sources.size();
    const size_t most = round.num_objects != 0 ? round.num_objects : allowed.size();
    if (from.size() < least || from.size() > most) return wrong("has ", from.size(), " sources");
    for (const auto& [source, node] : round.acknowledged) {
      if (distinct.contains(source) || !MustHaveAdded(round, view.generation, node)) continue;
      return wrong("lacks source ", source, ", whose addition was acknowledged");
    }
    if (!InOrder(round, from)) return wrong("is not in the requested order");
    // The first element encodes one attempt number per source.
    uint64_t remainder = elements.front();
    std::vector<uint64_t> attempts;
    for (const int source : from) {
      attempts.push_back(remainder >> (kAttemptBits * source) & kMaxAttempts);
      remainder -= attempts.back() << (kAttemptBits * source);
      const bool known =
          attempts.back() > 0 && attempts.back() <= sources_[static_cast<size_t>(source)].attempts;
      if (!known) return wrong("has no attempt at source ", source, " in it");
    }
    // A remainder is a source that `reduced_from` does not list.
    if (remainder != 0) return wrong("contains more than its sources");
    const std::vector<ElementRun>& runs = round.elements.runs;
    for (uint64_t i = 0; i < elements.size(); ++i) {
      const bool halved = !runs.empty() && i * sizeof(uint64_t) >= runs.front().end;
      uint64_t sum = 0;
      for (size_t k = 0; k < from.size(); ++k) {
        const uint64_t element = Element(from[k], attempts[k], i);
        sum = halved ? SumOfHalves(sum, element) : sum + element;
      }
      // Other attempts in a later element: the fold mixed two generations of a source.
      if (sum != elements[i]) return wrong("has other attempts in it from element ", i, " on");
    }
    if (!MetadataMatches(round, from, attempts, view.metadata)) {
      return wrong("has the metadata \"", view.metadata, "\"");
    }
    CheckCommitted(round, view.generation);
    NoteSeen(round, view.generation, elements);
    NoteCarriedOut(round, from);
  }

  // The sources of a request are in ascending order, so the fold must be too.
  static bool InOrder(const Round& round, const std::vector<int>& from) {
    const bool ordered = round.ring || (round.fixed && !round.open);
    return !ordered || std::is_sorted(from.begin(), from.end());
  }

  // Adds the two u32 halves without a carry between them.
  static uint64_t SumOfHalves(uint64_t a, uint64_t b) {
    constexpr uint64_t kLow = 0xffffffff;
    return ((a & kLow) + (b & kLow)) % (kLow + 1) | ((a & ~kLow) + (b & ~kLow));
  }

  void NoteCarriedOut(Round& round, const std::vector<int>& from) {
    // Only open reductions can be extended.
    if (!round.open) return;
    round.carried_out.insert(kClosing);
    for (const int source : from) {
      const auto& given = round.sources;
      if (std::find(given.begin(), given.end(), source) == given.end()) {
        round.carried_out.insert(source);
      }
    }
    CheckRefused(round);
  }

  // An addition or a close that is in a result must not have been refused. A shard that has
  // restarted can have forgotten the reduction.
  void CheckRefused(const Round& round) {
    const int shard = cluster_.ShardOf(round.target);
    if (cluster_.last_shard_start(shard) > Instant()) return;
    for (const int source : round.carried_out) {
      const bool refused = std::all_of(
          round.additions.begin(), round.additions.end(),
          [source](const Addition& one) { return one.source != source || one.refused; });
      if (!refused) continue;
      cluster_.journal().Violation(
          absl::StrCat(source == kClosing ? "closing" : absl::StrCat("adding ", source, " to"), " ",
                       NameOf(round), " was refused but carried out"));
    }
  }

  // The metadata is that of the first source in the list that has some. For an open reduction the
  // order of the list is unknown here.
  bool MetadataMatches(const Round& round, const std::vector<int>& from,
                       const std::vector<uint64_t>& attempts, absl::string_view metadata) const {
    std::map<int, std::string> there;
    for (size_t i = 0; i < from.size(); ++i) {
      std::string its = MetadataOf(from[i], attempts[i], plan_.alike);
      if (plan_.alike && its != kAlike) return false;
      if (!its.empty()) there[from[i]] = std::move(its);
    }
    if (there.empty()) return metadata.empty();
    if (!round.open) return metadata == there.begin()->second;
    return std::any_of(there.begin(), there.end(),
                       [metadata](const auto& each) { return each.second == metadata; });
  }

  // No node has all bytes of a result before the shard has committed it. A shard that has restarted
  // can have forgotten the commit.
  void CheckCommitted(const Round& round, const Generation& generation) {
    const int shard = cluster_.ShardOf(round.target);
    if (cluster_.last_shard_start(shard) > Instant() || cluster_.shard(shard) == nullptr) return;
    const v1::DescribeObjectResponse known = cluster_.Describe(round.target);
    if (!known.has_reduction() || known.reduction().committed()) return;
    if (directory::FromProto(known.summary().generation()) != generation) return;
    cluster_.journal().Violation(
        absl::StrCat("the result of ", NameOf(round), " was seen before it was committed"));
  }

  // Additions can be missing if the reduction was restarted after it had ended, or after the nodes
  // that knew them died. A reduction ends at its deadline even for callers that are unknown to
  // the shard, and a caller can get that answer later. It also ends when it is closed and a source
  // was deleted; a second close ends a later reduction of the same target.
  bool MustHaveAdded(const Round& round, const Generation& generation, const NodeKey& adder) {
    const Instant now = cluster_.scheduler().now();
    const bool failed_before = std::any_of(
        round.calls.begin(), round.calls.end(),
        [now](const Call& call) { return call.ended ? !call.status.ok() : call.deadline <= now; });
    const bool only = round.seen.empty() || round.seen.contains(generation);
    const auto closes =
        std::count_if(round.additions.begin(), round.additions.end(),
                      [](const Addition& addition) { return addition.source == kClosing; });
    const bool again = closes > 1 && SourceDeleted(round);
    return round.num_objects == 0 && !round.deleted && !failed_before && !again && only &&
           round.seen.size() <= 1 && cluster_.FindNode(adder) >= 0;
  }

  void NoteSeen(Round& round, const Generation& generation, const std::vector<uint64_t>& elements) {
    const auto [at, first] = round.seen.emplace(generation, elements.front());
    if (!first && at->second != elements.front()) {
      cluster_.journal().Violation(
          absl::StrCat("two readers of ", NameOf(round), " saw other bytes"));
    }
    // A second generation needs the loss or the deletion of the first.
    if (first && round.seen.size() > 1 && plan_.world.cluster.peaceful && !round.deleted) {
      cluster_.journal().Violation(absl::StrCat("two results of ", NameOf(round), " were seen"));
    }
  }

  int NumberOf(absl::string_view id) {
    for (size_t i = 0; i < sources_.size(); ++i) {
      const absl::string_view own(sources_[i].id.binary().data(), ObjectId::kSize);
      if (own == id) return static_cast<int>(i);
    }
    return -1;
  }

  std::string NameOf(const Round& round) const {
    std::string name = "target(";
    for (const int source : round.sources) absl::StrAppend(&name, source, " ");
    name.back() = ')';
    return absl::StrCat(name, round.fixed ? " fixed" : "", round.ring ? " in ring order" : "",
                        round.open ? " open" : "", " any ", round.num_objects);
  }

  void FillResult(SimulationResult& result) override {
    result.operations = rounds_.size();
    result.bytes_checked = bytes_checked_;
    result.from_rings = from_rings_;
  }

  const ReducePlanOfRun& plan_;
  std::vector<Source> sources_;
  std::vector<Round> rounds_;
  std::map<NodeKey, ClientId> clients_;
  int probes_open_ = 0;
  uint64_t bytes_checked_ = 0;
  uint64_t from_rings_ = 0;
};

}  // namespace

SimulationResult RunReduceSimulation(const ReducePlanOfRun& plan) {
  return ReduceSimulation(plan).Run();
}

}  // namespace phalanx::sim
