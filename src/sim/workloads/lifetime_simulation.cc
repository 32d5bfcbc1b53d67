#include "src/sim/workloads/lifetime_simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using object_store::View;

constexpr int kMostProcesses = 3;  // per node
// The share of a lease after which an absent node can be declared dead before the next sample.
constexpr double kAway = 0.9;
// The share of objects with a time to live.
constexpr double kExpiring = 0.25;

class LifetimeSimulation final : public ClientSimulation {
 public:
  explicit LifetimeSimulation(const LifetimePlan& plan)
      : ClientSimulation(
            plan.world,
            {.mean_pause = plan.mean_pause, .sample_every = std::max(plan.world.sample_every, 16)},
            Random(plan.seed * 127 + 3), Random(plan.seed * 131 + 4)),
        plan_(plan),
        lease_(plan.world.cluster.lease) {}

 private:
  struct Object {
    ObjectId id;
    int shard = 0;
    std::vector<size_t> refers_to;
    std::vector<size_t> referred_by;
    bool safe = true;
    bool kept = false;
    bool freed = false;
    absl::Duration ttl = absl::InfiniteDuration();
    Instant put_at;
    // When the creator knew that the object was adopted, at the latest: from then on nodes know
    // what is left, and a restarted shard continues to count.
    Instant acknowledged = Instant::Infinite();
    // Since when the shard has had the object without a break; infinite while it does not.
    Instant there_since = Instant::Infinite();
    Instant gone_at = Instant::Infinite();  // the first sample that found it deleted
  };
  // The refs of one process to one object.
  struct Ref {
    int times = 0;
    int busy = 0;  // the part that pending Puts need
    // The ref certainly counts. Until `young_until` this holds only if nothing happens to the
    // process's node and to the node that the ref came from.
    bool sure = false;
    Instant since;
    Instant young_until;
    NodeKey from;
  };
  struct Process {
    int number = 0;
    NodeKey life;
    ClientId client = 0;
    std::map<size_t, Ref> refs;
  };
  struct Message {
    size_t object = 0;
    NodeKey from;
    uint64_t number = 0;
    Instant sent;
    bool sure = false;
    bool arrived = false;
  };
  using Link = std::pair<NodeKey, int>;  // a node's life, and a shard
  struct Absence {
    bool here = false;
    Instant seen;  // the last time that the shard had a session with the node
    // The last time that the node was absent for too long.
    Instant too_long = Instant::FromNanos(-1);
  };

  absl::Duration patience() const { return plan_.world.cluster.transit_patience; }

  // ---- phases

  void Settle() override {
    // References in transit expire after `patience`; only then are their objects unreferenced.
    RunFor(patience() + lease_ * 4);
    Await("to free unreferenced objects", [this] { return AtRest(); });
  }

  void CleanUp() override {
    for (const auto& process : processes_) {
      OnNode(cluster_.FindNode(process->life), [this, p = process.get()](int n) { End(n, *p); });
    }
    OnNode(0, [this](int n) {
      kept_deleter_ = cluster_.store(n)->OpenClient();
      for (Object& object : objects_) {
        // Kept objects have no holder, so only a Delete removes them.
        if (!object.kept) continue;
        object.safe = false;
        cluster_.store(n)->Delete(kept_deleter_, object.id, cluster_.NowAt(n) + absl::Seconds(20),
                                  [](const absl::Status&) {});
      }
    });
    RunFor(absl::Seconds(1));
    OnNode(0, [this](int n) { cluster_.store(n)->CloseClient(kept_deleter_, /*clean=*/true); });
  }

  // ---- acts of clients; each on the node's control loop

  std::vector<Process*> ProcessesOf(int n) {
    std::vector<Process*> here;
    for (const auto& process : processes_) {
      if (process->life == cluster_.node(n)->key()) here.push_back(process.get());
    }
    return here;
  }

  Process& AnyProcess(int n) {
    const std::vector<Process*> here = ProcessesOf(n);
    // Mostly an existing process, so that processes collect refs.
    if (!here.empty() && (here.size() >= kMostProcesses || random_.Chance(0.9))) {
      return *here[random_.Below(here.size())];
    }
    auto process = std::make_unique<Process>();
    process->number = ++last_process_;
    process->life = cluster_.node(n)->key();
    process->client = cluster_.store(n)->OpenClient();
    processes_.push_back(std::move(process));
    return *processes_.back();
  }

  void Act(int n) override {
    Process& process = AnyProcess(n);
    const double choice = random_.Unit();
    if (choice < 0.3 || process.refs.empty()) {
      Put(n, process);
    } else if (choice < 0.55) {
      SendReference(n, process, AnyRef(process));
    } else if (choice < 0.72) {
      Release(n, process, AnyRef(process));
    } else if (choice < 0.92) {
      Read(n, process, AnyRef(process));
    } else if (choice < 0.93) {
      Keep(n, process, AnyRef(process));
    } else if (choice < 0.97) {
      End(n, process);
    }
  }

  size_t AnyRef(Process& process) {
    return std::next(process.refs.begin(), static_cast<long>(random_.Below(process.refs.size())))
        ->first;
  }

  std::string NameOf(size_t object) const { return absl::StrCat("o", object); }
  std::string NameOf(const Process& process) {
    return absl::StrCat("p", process.number, " on ", NodeName(cluster_.FindNode(process.life)));
  }

  // Takes a ref. If `sure`, the process can rely on it.
  void Hold(int n, Process& process, size_t object, bool sure, const NodeKey& from = {}) {
    cluster_.journal().Violation(
        "Hold", cluster_.store(n)->Hold(process.client, {&objects_[object].id, 1}));
    AddRef(process, object, sure, from);
  }

  void AddRef(Process& process, size_t object, bool sure, const NodeKey& from) {
    Ref& ref = process.refs[object];
    ++ref.times;
    // A ref that is certain already does not depend on the source of this one.
    if (ref.sure || !sure) return;
    ref.sure = true;
    ref.since = now();
    ref.young_until = now() + lease_ / 2;
    ref.from = from;
  }

  void DropRef(int n, Process& process, size_t object) {
    const auto ref = process.refs.find(object);
    if (--ref->second.times == 0) process.refs.erase(ref);
    cluster_.store(n)->Unhold(process.client, {&objects_[object].id, 1});
  }

  void Put(int n, Process& process) {
    const size_t number = objects_.size();
    Object object;
    object.id = ObjectId::FromName("lifetime", absl::StrCat(number));
    object.shard = cluster_.ShardOf(object.id);
    object_store::PutOptions options;
    for (int i = 0; i < 3 && !process.refs.empty() && random_.Chance(0.4); ++i) {
      const size_t other = AnyRef(process);
      object.refers_to.push_back(other);
      options.refers_to.append(objects_[other].id.binary().data(), ObjectId::kSize);
    }
    if (random_.Chance(kExpiring)) {
      object.ttl = lease_ * (0.2 + 3.8 * random_.Unit());
      options.wait_for_adoption = random_.Chance(0.5);
    }
    object.put_at = now();
    options.ttl = object.ttl;
    options.id = object.id;
    options.owned = true;
    options.deadline = cluster_.NowAt(n) + absl::Seconds(2);
    objects_.push_back(object);
    // The process of the Put holds the inner objects until the Put has ended.
    for (const size_t other : object.refers_to) {
      if (process.refs.at(other).sure) objects_[other].referred_by.push_back(number);
      ++process.refs.at(other).times;
      ++process.refs.at(other).busy;
      cluster_.store(n)->Hold(process.client, {&objects_[other].id, 1}).IgnoreError();
    }
    cluster_.journal().Note(NameOf(process), " puts ", NameOf(number), ", ttl ",
                            absl::FormatDuration(object.ttl));
    Hold(n, process, number, /*sure=*/true);
    const uint64_t size =
        random_.Chance(0.6) ? random_.Below(1000) : random_.Below(plan_.max_bytes);
    cluster_.store(n)->Put(process.client, options, std::string(size, 'x'),
                           [this, number, life = process.life, process_number = process.number,
                            adopted = options.wait_for_adoption](
                               const absl::StatusOr<object_store::PutResult>& result) {
                             if (adopted && result.ok()) objects_[number].acknowledged = now();
                             // The shard was away; the object exists, without its creator's ref.
                             const bool late = adopted && absl::IsDeadlineExceeded(result.status());
                             PutDone(number, life, process_number, result.status(), late);
                           });
  }

  void PutDone(size_t number, const NodeKey& life, int process_number, const absl::Status& status,
               bool late) {
    const int n = cluster_.FindNode(life);
    Process* process = Find(process_number);
    if (n < 0 || process == nullptr) return;
    cluster_.journal().Note(NameOf(number), ": ", status.ToString());
    // A Put that was refused is only a violation if nothing in the run explains the error.
    const bool explained = status.ok() || late || absl::IsResourceExhausted(status) ||
                           (absl::IsNotFound(status) && !Safe(objects_[number]));
    if (!explained) {
      cluster_.journal().Violation(absl::StrCat("Put of ", NameOf(number)), status);
    }
    for (const size_t other : objects_[number].refers_to) {
      --process->refs.at(other).busy;
      DropRef(n, *process, other);
    }
    // Below: a failed Put leaves no object, so its ref protects nothing.
    if (status.ok()) return;
    objects_[number].safe = false;
    const auto own = process->refs.find(number);
    // A ref that another Put needs ends with that Put.
    if (own != process->refs.end() && own->second.times > own->second.busy) {
      DropRef(n, *process, number);
    }
  }

  Process* Find(int number) {
    for (const auto& process : processes_) {
      if (process->number == number) return process.get();
    }
    return nullptr;
  }

  void Release(int n, Process& process, size_t object) {
    const Ref& ref = process.refs.at(object);
    // A ref that a pending Put needs must stay.
    if (ref.times == ref.busy) return;
    cluster_.journal().Note(NameOf(process), " releases ", NameOf(object));
    DropRef(n, process, object);
  }

  void SendReference(int n, Process& process, size_t object) {
    Message message;
    message.object = object;
    message.from = process.life;
    message.number = ++last_token_;
    message.sent = now();
    message.sure = process.refs.at(object).sure;
    cluster_.store(n)->Transit(objects_[object].id, message.number);
    const size_t index = messages_.size();
    messages_.push_back(message);
    cluster_.journal().Note(NameOf(process), " sends ", NameOf(object));
    // The sender can release at once: the reference in transit keeps the object.
    if (random_.Chance(0.6)) Release(n, process, object);
    if (random_.Chance(0.05)) return;  // the message is lost
    // Some messages arrive after the reference in transit has expired.
    const absl::Duration most = random_.Chance(0.8) ? absl::Milliseconds(100) : patience() * 1.2;
    const int to = static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.num_nodes())));
    cluster_.scheduler().After(most * random_.Unit(), [this, index, to] {
      OnNode(to, [this, index](int node) { Receive(node, index); });
    });
  }

  void Receive(int n, size_t index) {
    Message& message = messages_[index];
    Process& process = AnyProcess(n);
    const Object& object = objects_[message.object];
    // A margin for clocks of the two nodes and for the claim's way to the shard.
    const bool in_time = now() + lease_ * 3 < message.sent + patience();
    const bool sure = TransitProtects(message) && in_time && Safe(object) &&
                      links_[{process.life, object.shard}].here &&
                      links_[{message.from, object.shard}].here;
    cluster_.journal().Note(NameOf(process), " receives ", NameOf(message.object),
                            sure ? "" : ", uncertain");
    // A claimed reference no longer protects the object by itself.
    message.arrived = true;
    const absl::Status held = cluster_.store(n)->Claim(
        process.client, object.id, object_store::TransitMark{message.from, message.number});
    cluster_.journal().Violation("Claim", held);
    AddRef(process, message.object, sure, message.from);
    // Sometimes the message is delivered twice.
    if (!random_.Chance(0.05)) return;
    Process& again = AnyProcess(n);
    cluster_.store(n)
        ->Claim(again.client, object.id, object_store::TransitMark{message.from, message.number})
        .IgnoreError();
    AddRef(again, message.object, /*sure=*/&again == &process && sure, message.from);
  }

  // Gets the object, and holds the objects that it refers to.
  void Read(int n, Process& process, size_t object) {
    object_store::GetOptions options;
    options.id = objects_[object].id;
    options.deadline = cluster_.NowAt(n) + absl::Seconds(3) * random_.Unit();
    options.fail_when_lost = random_.Chance(0.5);
    const bool impatient = options.fail_when_lost;
    object_store::GetEvents events;
    events.on_view = [this, life = process.life, process_number = process.number, object, impatient,
                      begun = now()](absl::StatusOr<View> view) {
      if (view.ok()) CheckNotExpired(object, life, begun);
      const int node = cluster_.FindNode(life);
      Process* reader = Find(process_number);
      if (node < 0 || reader == nullptr) return;
      if (view.ok()) cluster_.store(node)->Release(reader->client, view->pin).IgnoreError();
      WasRead(node, *reader, object, view.status(), impatient);
    };
    cluster_.store(n)->Get(process.client, options, std::move(events));
  }

  void WasRead(int n, Process& process, size_t object, const absl::Status& status, bool impatient) {
    cluster_.journal().Note(NameOf(process), " reads ", NameOf(object), ": ", status.ToString());
    const auto ref = process.refs.find(object);
    if (ref == process.refs.end()) return;
    // NotFound means freed, which a certain ref must prevent.
    if (absl::IsNotFound(status) && IsSure(process, object)) Violate(object, "is NotFound");
    // With faults the last copy can die with its node while a hold keeps the id.
    if (absl::IsDataLoss(status) && (!impatient || plan_.world.cluster.peaceful)) {
      Violate(object, "is DataLoss");
    }
    if (!status.ok() || !random_.Chance(0.7)) return;
    const std::vector<size_t> inner = objects_[object].refers_to;
    for (const size_t other : inner) {
      // The copy that was read protects the inner object until this hold counts.
      Hold(n, process, other, Safe(objects_[other]) && Protected(other));
    }
  }

  void Keep(int n, Process& process, size_t object) {
    objects_[object].kept = true;
    cluster_.store(n)->Keep(process.client, objects_[object].id,
                            cluster_.NowAt(n) + absl::Seconds(5), [](const absl::Status&) {});
  }

  void End(int n, Process& process) {
    const bool clean = random_.Chance(0.3);
    cluster_.journal().Note(NameOf(process), clean ? " leaves" : " dies");
    cluster_.store(n)->CloseClient(process.client, clean);
    std::erase_if(processes_, [&process](const auto& p) { return p.get() == &process; });
  }

  // ---- invariants

  void OnSample() override {
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      if (cluster_.shard(s) != nullptr) SampleNodes(s);
    }
    // The processes of a dead node died with it.
    std::erase_if(processes_, [this](const auto& p) { return cluster_.FindNode(p->life) < 0; });
    SampleCopies();
    for (const auto& process : processes_) {
      for (auto& [object, ref] : process->refs) ReviewRef(*process, objects_[object], ref);
    }
    for (size_t object = 0; object < objects_.size(); ++object) {
      CheckObject(object);
      CheckExpiry(object);
    }
  }

  // Records which nodes have sessions with the shard, according to the shard.
  void SampleNodes(int s) {
    v1::GetStatusResponse status;
    cluster_.shard(s)->FillStatus(&status);
    std::set<NodeKey> known;
    for (const v1::NodeStatus& node : status.nodes()) {
      known.insert({node.info().key().node(), node.info().key().incarnation()});
    }
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      const NodeKey life = cluster_.node(n)->key();
      Absence& absence = links_[{life, s}];
      absence.here = known.contains(life);
      if (absence.here) {
        absence.seen = now();
      } else if (now() - std::max(absence.seen, cluster_.last_shard_start(s)) > lease_ * kAway) {
        absence.too_long = now();
      }
    }
  }

  bool Alive(const NodeKey& life) { return cluster_.FindNode(life) >= 0; }
  bool AwaySince(const NodeKey& life, int shard, Instant since) {
    return links_[{life, shard}].too_long >= since;
  }

  // Records since when each node has had a complete copy of each object.
  void SampleCopies() {
    std::map<std::pair<NodeKey, ObjectId>, Instant> before = std::move(copies_);
    copies_.clear();
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      for (const auto& copy : cluster_.store(n)->Copies()) {
        if (!copy.complete) continue;
        const std::pair key{cluster_.node(n)->key(), copy.id};
        const auto seen = before.find(key);
        copies_[key] = seen == before.end() ? now() : seen->second;
      }
    }
  }

  void ReviewRef(const Process& process, const Object& object, Ref& ref) {
    if (!ref.sure) return;
    // The shard ends the holds of a node whose lease has expired.
    if (AwaySince(process.life, object.shard, ref.since)) ref.sure = false;
    // A young ref is certain only if both nodes could report it to the shard in time.
    if (now() > ref.young_until) return;
    const bool both_there =
        links_[{process.life, object.shard}].here &&
        (!ref.from.valid() || (Alive(ref.from) && links_[{ref.from, object.shard}].here));
    // A creator holds its object before any other process knows the id.
    if (ref.from.valid() && !both_there) ref.sure = false;
  }

  // The shard adopts an object after its Put has begun.
  bool MayHaveExpired(const Object& object) { return now() >= object.put_at + object.ttl; }
  bool Safe(const Object& object) { return object.safe && !MayHaveExpired(object); }

  bool IsSure(const Process& process, size_t object) {
    const auto ref = process.refs.find(object);
    return Safe(objects_[object]) && ref != process.refs.end() && ref->second.sure;
  }

  bool TransitProtects(const Message& message) {
    return message.sure && !message.arrived && Alive(message.from) &&
           !AwaySince(message.from, objects_[message.object].shard, message.sent) &&
           now() + absl::Milliseconds(1) < message.sent + patience();
  }

  bool CopyProtects(const Object& referring, const Object& object) {
    // From then on its copies can go, and the samples are older than their end.
    if (MayHaveExpired(referring)) return false;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      const NodeKey life = cluster_.node(n)->key();
      const auto copy = copies_.find({life, referring.id});
      // A new copy counts only when its node has had the time to register the inner references.
      if (copy == copies_.end() || now() < copy->second + lease_ / 2) continue;
      if (!AwaySince(life, object.shard, copy->second)) return true;
    }
    return false;
  }

  // Returns whether some hold certainly counts.
  bool Protected(size_t number) {
    const Object& object = objects_[number];
    for (const auto& process : processes_) {
      const auto ref = process->refs.find(number);
      if (ref != process->refs.end() && ref->second.sure) return true;
    }
    for (const Message& message : messages_) {
      if (message.object == number && TransitProtects(message)) return true;
    }
    return std::any_of(object.referred_by.begin(), object.referred_by.end(),
                       [&](size_t by) { return CopyProtects(objects_[by], object); });
  }

  void CheckObject(size_t number) {
    Object& object = objects_[number];
    if (object.freed || !object.safe) return;
    if (MayHaveExpired(object)) object.safe = false;
    // Never true again after one sample without protection: the object can be freed from then on.
    object.safe = object.safe && Protected(number);
    if (!object.safe) return;
    const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
    if (summary.deleted()) return Violate(number, "was freed");
    if (summary.complete_copies() > 0) ++checked_;
  }

  // The shard has adopted the object, or a node has registered it, when it is first there; and a
  // node that a fault keeps from the shard drops its copy in its next session.
  Instant GoneBy(const Object& object) {
    const Instant counted_from = std::min(object.acknowledged, object.there_since);
    return std::max(counted_from + object.ttl, object.there_since) + lease_ * 4;
  }

  void CheckExpiry(size_t number) {
    Object& object = objects_[number];
    if (object.ttl == absl::InfiniteDuration()) return;
    const bool runs =
        cluster_.shard(object.shard) != nullptr && !cluster_.shard_stalled(object.shard);
    const v1::ObjectSummary summary =
        runs ? cluster_.Describe(object.id).summary() : v1::ObjectSummary();
    if (summary.deleted()) object.gone_at = std::min(object.gone_at, now());
    if (summary.deleted() || !summary.has_info()) {
      object.there_since = Instant::Infinite();
      return;
    }
    object.there_since = std::min(object.there_since, now());
    if (now() > GoneBy(object)) Violate(number, "outlives its time to live");
    ++checked_;
  }

  // A Get that began at `begun` on the node has returned the object.
  void CheckNotExpired(size_t number, const NodeKey& life, Instant begun) {
    const Object& object = objects_[number];
    if (object.gone_at.infinite() || begun <= object.gone_at + lease_ * 4) return;
    // A node that the shard cannot reach serves its copies.
    const bool in_touch =
        links_[{life, object.shard}].here && !AwaySince(life, object.shard, begun - lease_ * 4);
    if (in_touch && object.there_since.infinite() && object.ttl != absl::InfiniteDuration()) {
      Violate(number, "is read after its time to live");
    }
  }

  void Violate(size_t number, absl::string_view what) {
    std::string holders;
    for (const auto& process : processes_) {
      const auto ref = process->refs.find(number);
      if (ref == process->refs.end()) continue;
      absl::StrAppend(&holders, " ", NameOf(*process), ref->second.sure ? " certainly" : "");
    }
    for (const size_t by : objects_[number].referred_by) {
      absl::StrAppend(&holders, " ", NameOf(by));
    }
    cluster_.journal().Violation(absl::StrCat(NameOf(number), " ", what, " while held by", holders,
                                              "; ",
                                              cluster_.DescribeEverywhere(objects_[number].id)));
  }

  // ---- at rest

  // Returns the held objects, and the objects that they refer to.
  std::set<size_t> Reachable() {
    std::vector<size_t> left;
    for (const auto& process : processes_) {
      for (const auto& [object, ref] : process->refs) left.push_back(object);
    }
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (objects_[i].kept) left.push_back(i);
    }
    std::set<size_t> reachable;
    while (!left.empty()) {
      const size_t object = left.back();
      left.pop_back();
      if (!reachable.insert(object).second) continue;
      const std::vector<size_t>& inner = objects_[object].refers_to;
      left.insert(left.end(), inner.begin(), inner.end());
    }
    return reachable;
  }

  absl::Status AtRest() {
    const std::set<size_t> reachable = Reachable();
    for (size_t i = 0; i < objects_.size(); ++i) {
      const v1::DescribeObjectResponse described = cluster_.Describe(objects_[i].id);
      const v1::ObjectSummary& summary = described.summary();
      // Tombstones and objects that were never put need no holder.
      if (summary.deleted() || !summary.has_info()) continue;
      if (!reachable.contains(i)) {
        return absl::UnavailableError(absl::StrCat(
            NameOf(i), " exists without a holder: ", cluster_.DescribeEverywhere(objects_[i].id)));
      }
      const uint32_t holders = HoldersOf(i);
      if (summary.holders() == holders) continue;
      return absl::UnavailableError(absl::StrCat(NameOf(i), " is held on ", holders, " nodes: ",
                                                 cluster_.DescribeEverywhere(objects_[i].id)));
    }
    return absl::OkStatus();
  }

  uint32_t HoldersOf(size_t number) {
    uint32_t holders = 0;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      bool holds = false;
      for (const Process* process : ProcessesOf(n)) holds |= process->refs.contains(number);
      for (const auto& copy : cluster_.store(n)->Copies()) {
        for (size_t i = 0; i < objects_.size() && !holds; ++i) {
          const std::vector<size_t>& inner = objects_[i].refers_to;
          holds = objects_[i].id == copy.id &&
                  std::find(inner.begin(), inner.end(), number) != inner.end();
        }
      }
      holders += holds ? 1 : 0;
    }
    return holders;
  }

  absl::Status Empty() override {
    if (absl::Status status = checkers_.Empty(); !status.ok()) return status;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      const object_store::StoreStats stats = cluster_.store(n)->stats();
      if (stats.held == 0 && stats.transits == 0) continue;
      return absl::UnavailableError(absl::StrCat(NodeName(n), " holds ", stats.held));
    }
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      v1::GetStatusResponse status;
      cluster_.shard(s)->FillStatus(&status);
      if (status.counters().at("holds") == 0) continue;
      return absl::UnavailableError(
          absl::StrCat(ShardName(s), " has ", status.counters().at("holds"), " holds"));
    }
    return absl::OkStatus();
  }

  void FillResult(SimulationResult& result) override {
    result.operations = objects_.size();
    result.bytes_checked = checked_;
  }

  const LifetimePlan& plan_;
  const absl::Duration lease_;
  std::vector<Object> objects_;
  std::vector<std::unique_ptr<Process>> processes_;  // that are alive
  int last_process_ = 0;
  std::vector<Message> messages_;
  uint64_t last_token_ = 0;
  std::map<Link, Absence> links_;
  std::map<std::pair<NodeKey, ObjectId>, Instant> copies_;
  ClientId kept_deleter_ = 0;
  uint64_t checked_ = 0;
};

}  // namespace

LifetimePlan DrawLifetimePlan(uint64_t seed, bool peace) {
  LifetimePlan plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 137 + 5);
  plan.world.cluster.capacity_bytes = 16 << 20;
  plan.world.cluster.allocation_failures = 0;
  plan.world.cluster.transit_patience = plan.world.cluster.lease * 8;
  plan.mean_pause = absl::Milliseconds(20 + random.Below(100));
  plan.max_bytes = 1000 + random.Below(150'000);
  // Links are fast enough to carry everything in time: a late message could make a safe object
  // unsafe.
  SimFabric::Options& fabric = plan.world.cluster.fabric;
  if (fabric.link.bytes_per_second > 0) {
    fabric.link.bytes_per_second = std::max(fabric.link.bytes_per_second, 4e7);
  }
  if (fabric.interface_bytes_per_second > 0) {
    fabric.interface_bytes_per_second = std::max(fabric.interface_bytes_per_second, 4e7);
  }
  return plan;
}

std::string Describe(const LifetimePlan& plan) {
  return absl::StrCat("objects of up to ", plan.max_bytes, " bytes; ", Describe(plan.world));
}

SimulationResult RunLifetimeSimulation(const LifetimePlan& plan) {
  return LifetimeSimulation(plan).Run();
}

}  // namespace phalanx::sim
