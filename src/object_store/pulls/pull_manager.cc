#include "src/object_store/pulls/pull_manager.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/ids/shard_of.h"
#include "src/object_store/objects/subject.h"

namespace phalanx::object_store {
namespace {

enum class Memory : uint8_t { kNone, kWaiting, kHere };

constexpr size_t kReusedEffects = 64;
constexpr uint64_t kAllSlices = ~uint64_t{0};

// Returns nullopt if the message is malformed.
std::optional<PullTarget> TargetOf(const v1::Generation& generation, const v1::ObjectInfo& info,
                                   Instant now) {
  PullTarget target{directory::FromProto(generation),
                    info.size_bytes(),
                    static_cast<int>(info.slices()),
                    {info.metadata(), info.reduced_from(), info.asked_for(), info.refers_to(),
                     info.owned(), directory::NameOf(info)}};
  target.traits.scope = directory::ScopeOf(info);
  target.traits.expires = now + directory::TtlOf(info);
  const bool sane = target.generation.valid() && target.generation.creator.valid() &&
                    info.size_bytes() <= kMaxObjectBytes && info.slices() >= 1 &&
                    info.slices() <= static_cast<uint32_t>(kMaxSlices) &&
                    info.metadata().size() <= kMaxMetadataBytes &&
                    info.reduced_from().size() <= kMaxReduceSources * ObjectId::kSize &&
                    info.reduced_from().size() % ObjectId::kSize == 0 &&
                    directory::ParseObjectIds("refers_to", info.refers_to()).ok() &&
                    info.asked_for().size() <= directory::kMaxAskedForBytes;
  if (!sane) return std::nullopt;
  return target;
}

// A shift by 64 is undefined, so the greatest number of slices is a case of its own.
bool SlicesWithin(uint64_t mask, int slices) {
  return mask != 0 && (slices == kMaxSlices || mask >> slices == 0);
}

}  // namespace

// A pull that runs.
struct PullManager::Transfer {
  uint64_t number = 0;
  Generation generation;
  PullSource source;
  bool cancelling = false;
};

struct PullManager::Pull {
  bool wanted = false;  // by clients
  bool fetch = false;   // on the node's own account
  bool keep = false;
  bool want_open = false;  // at the shard
  ObjectId near;
  ObjectName name;
  Scope scope;        // that a client named for it last
  uint64_t want = 0;  // its number
  PlanId last_plan = 0;
  PlanId confirm_plan = 0;  // under which a Deliver is to be confirmed
  PlanId order = 0;         // the last Fetch

  std::optional<PullTarget> target;
  Memory memory = Memory::kNone;
  uint64_t token = 0;
  bool parked = false;  // the open want says that there is no memory
  // The next step once memory is reserved and no other pull of the slices runs: pulls of disjoint
  // slices, or all the bytes.
  std::vector<PullSource> next;
  std::optional<std::string> delivered;

  std::vector<Transfer> running;
  uint64_t done = 0;  // the slices whose pulls have brought every byte of the target

  bool needed() const { return wanted || fetch; }
  // Returns true if a pull of other bytes, or of one of these slices, has not ended.
  bool Blocks(uint64_t slices) const {
    return std::any_of(running.begin(), running.end(), [this, slices](const Transfer& transfer) {
      return (transfer.source.slices & slices) != 0 || transfer.generation != target->generation;
    });
  }
};

PullManager::PullManager() = default;
PullManager::~PullManager() = default;

std::vector<PullEffect> PullManager::TakeEffects() { return std::exchange(effects_, {}); }

void PullManager::Reuse(std::vector<PullEffect> applied) {
  // The effects that were decided meanwhile stay, and a turn of many leaves no large vector behind.
  if (!effects_.empty() || applied.capacity() > kReusedEffects) return;
  applied.clear();
  effects_ = std::move(applied);
}

PullManager::Pull* PullManager::FindPull(const ObjectId& id) const {
  const auto it = pulls_.find(id);
  return it == pulls_.end() ? nullptr : it->second.get();
}

PullManager::Pull& PullManager::FindOrMake(const ObjectId& id) {
  std::unique_ptr<Pull>& pull = pulls_[id];
  if (pull == nullptr) pull = std::make_unique<Pull>();
  return *pull;
}

// ------------------------------------------------------------------------------------ messages

v1::NodeMessage& PullManager::Send(const ObjectId& id) {
  // Built in its place, because each move constructs and destroys a protobuf.
  effects_.emplace_back(std::in_place_type<ReportToShard>);
  ReportToShard& report = std::get<ReportToShard>(effects_.back());
  report.id = id;
  return report.message;
}

void PullManager::SendWant(const ObjectId& id, Pull& pull) {
  // One open Want per object and session, however many clients ask: the shard plans one pull for
  // each.
  if (pull.want_open) return;
  pull.want_open = true;
  v1::Want* want = Send(id).mutable_want();
  want->set_object_id(IdBytes(id));
  want->set_keep(pull.keep);
  // A new number each time, so that an Assign for an earlier Want, which crossed an Unwant, is
  // known.
  want->set_number(pull.want = next_want_++);
  if (!pull.near.nil()) want->set_near_id(IdBytes(pull.near));
  directory::SetName(pull.name, want);
  directory::SetScope(pull.scope, want);
  if (pull.parked) directory::ToProto(pull.target->generation, want->mutable_no_room_for());
}

void PullManager::SendUnwant(const ObjectId& id, Pull& pull) {
  // Sent even without an open Want: a Fetch that comes to nothing must be refused by its number, or
  // the broadcast that ordered it waits for ever.
  const PlanId order = std::exchange(pull.order, 0);
  if (!std::exchange(pull.want_open, false) && order == 0) return;
  v1::Unwant* unwant = Send(id).mutable_unwant();
  unwant->set_object_id(IdBytes(id));
  unwant->set_fetch(order);
}

void PullManager::Withdraw(const ObjectId& id, const Generation& generation,
                           absl::string_view why) {
  v1::Withdraw* withdraw = Send(id).mutable_withdraw();
  SetSubject(id, generation, withdraw);
  withdraw->set_reason(std::string(why));
}

void PullManager::Report(const ObjectId& id, const Transfer& transfer, const PullEnd& end,
                         bool complete, bool keep) {
  v1::PullReport* report = Send(id).mutable_pull_report();
  SetSubject(id, transfer.generation, report);
  report->set_plan_id(transfer.source.plan);
  report->set_complete(complete);
  report->set_primary(complete && keep);
  const net::PullOutcome& outcome = end.outcome;
  report->set_code(complete ? 0 : static_cast<int>(outcome.status.code()));
  if (!complete) report->set_message(std::string(outcome.status.message()));
  // The next pull continues at these watermarks, and the shard estimates by them what is missing.
  report->mutable_watermarks()->Add(end.watermarks.begin(), end.watermarks.end());
  report->set_bytes_received(outcome.bytes_received);
  report->set_first_byte_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(outcome.first_byte)));
  report->set_bytes_per_second(outcome.bytes_per_second);
  report->set_starved_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(outcome.starved)));
}

// ---------------------------------------------------------------------------------- who wants

void PullManager::Want(const ObjectId& id, const ObjectId& near, const ObjectName& name,
                       const Scope& scope) {
  Pull& pull = FindOrMake(id);
  // The shard may know that it has ended. Nothing runs yet that a second Want would disturb.
  if (!scope.empty() && pull.scope != scope && !pull.target) pull.want_open = false;
  if (!scope.empty()) pull.scope = scope;
  pull.near = near;
  pull.name = name;
  pull.wanted = true;
  // A Deliver has closed the want at the shard; its bytes answer this one too.
  if (!pull.delivered) SendWant(id, pull);
}

void PullManager::Unwant(const ObjectId& id) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->wanted) return;
  pull->wanted = false;
  // What the node fetches on its own account continues without clients.
  if (!pull->fetch) GiveUp(id, *pull, absl::CancelledError("this node does not want it any more"));
}

void PullManager::ConfirmDelivery(const ObjectId& id, PlanId plan) {
  if (Pull* pull = FindPull(id)) pull->confirm_plan = plan;
}

void PullManager::Fetch(const ObjectId& id, bool keep, PlanId order) {
  Pull& pull = FindOrMake(id);
  pull.fetch = true;
  pull.order = order;
  pull.keep = pull.keep || keep;
  if (!pull.delivered) SendWant(id, pull);
}

void PullManager::AskAgain(const ObjectId& id) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !std::exchange(pull->want_open, false)) return;
  SendWant(id, *pull);
}

void PullManager::EndFetch(const ObjectId& id) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->fetch) return;
  pull->fetch = false;
  if (!pull->wanted) GiveUp(id, *pull, absl::CancelledError("it is not fetched any more"));
}

void PullManager::EndOrder(const ObjectId& id, PlanId order) {
  const Pull* pull = FindPull(id);
  if (pull != nullptr && pull->order == order) EndFetch(id);
}

bool PullManager::Fetches(const ObjectId& id) const {
  const Pull* pull = FindPull(id);
  return pull != nullptr && pull->fetch;
}

bool PullManager::Idle(const ObjectId& id) const {
  const Pull* pull = FindPull(id);
  if (pull == nullptr || (pull->running.empty() && pull->memory != Memory::kWaiting)) return true;
  // A pull that waits for memory is not idle: it ends by itself when the memory comes.
  if (pull->memory == Memory::kWaiting || !pull->target) return false;
  // Without a sender of the other slices, the senders of these can wait for this node in turn.
  uint64_t slices = pull->done;
  for (const Transfer& transfer : pull->running) slices |= transfer.source.slices;
  return (~slices & AllSlices(pull->target->slices)) != 0;
}

void PullManager::GiveUp(const ObjectId& id, Pull& pull, const absl::Status& why) {
  pull.wanted = pull.fetch = pull.keep = false;
  SendUnwant(id, pull);
  // What this node has of the object is about to go: the shard must not offer it as a sender.
  if (pull.target && (pull.memory == Memory::kHere || pull.delivered)) {
    Withdraw(id, pull.target->generation, why.message());
  }
  DropTarget(id, pull, why);
  EraseIfDone(id);
}

void PullManager::EraseIfDone(const ObjectId& id) {
  const auto it = pulls_.find(id);
  // A cancelled pull keeps its entry until it has ended: until then it writes into the copy.
  if (it == pulls_.end() || it->second->needed() || !it->second->running.empty()) return;
  pulls_.erase(it);
}

// ------------------------------------------------------------------------------------ targets

void PullManager::SetTarget(const ObjectId& id, Pull& pull, PullTarget target) {
  pull.target = std::move(target);
  pull.memory = Memory::kWaiting;
  // Memory that was asked for under an earlier token and comes later is not taken for this target.
  pull.token = next_token_++;
  Do(ReserveMemory{id, pull.token, *pull.target});
}

void PullManager::DropTarget(const ObjectId& id, Pull& pull, const absl::Status& why) {
  if (!pull.target) return;
  Stop(pull, kAllSlices);
  // Token 0: OnMemory has reported an error, so nothing is waited for any more.
  if (pull.memory == Memory::kWaiting && pull.token != 0) Do(ForgetMemory{id, pull.token});
  if (pull.memory == Memory::kHere) Do(DropPartial{id, pull.target->generation, why});
  pull.target.reset();
  pull.memory = Memory::kNone;
  pull.token = 0;
  pull.parked = false;
  pull.done = 0;
  pull.next.clear();
  pull.delivered.reset();
}

void PullManager::Stop(Pull& pull, uint64_t slices) {
  for (Transfer& transfer : pull.running) {
    if (transfer.cancelling || (transfer.source.slices & slices) == 0) continue;
    transfer.cancelling = true;
    Do(CancelPull{transfer.number});
  }
}

void PullManager::StartNext(const ObjectId& id, Pull& pull) {
  // A slice has one writer: the replaced pull must have ended before the next one starts.
  if (pull.memory != Memory::kHere) return;
  if (pull.delivered) {
    if (!pull.running.empty()) return;
    Do(FillCopy{id, pull.target->generation, *std::exchange(pull.delivered, std::nullopt)});
    // The shard waits for this confirmation before it counts the delivered copy.
    if (pull.confirm_plan != 0) {
      v1::PullReport* report = Send(id).mutable_pull_report();
      SetSubject(id, pull.target->generation, report);
      report->set_plan_id(pull.confirm_plan);
      report->set_complete(true);
      report->set_primary(pull.keep);
    }
    Finish(id, pull);
    return;
  }
  for (PullSource& source : std::exchange(pull.next, {})) {
    if (pull.Blocks(source.slices)) {
      pull.next.push_back(std::move(source));
      continue;
    }
    pull.running.push_back({next_number_++, pull.target->generation, source});
    ++running_;
    Do(StartPull{id, pull.target->generation, std::move(source), pull.running.back().number});
  }
}

void PullManager::Park(const ObjectId& id, Pull& pull) {
  if (pull.delivered) Withdraw(id, pull.target->generation, "no memory is free for it yet");
  pull.delivered.reset();
  pull.next.clear();
  pull.parked = true;
  // So that the Want is sent again, now with no_room_for: that is how the shard learns.
  pull.want_open = false;
  SendWant(id, pull);
}

void PullManager::Finish(const ObjectId& id, Pull& pull) {
  Do(CompleteCopy{id, pull.target->generation, pull.keep});
  // The report or the Deliver has closed the want.
  pulls_.erase(id);
}

// ---------------------------------------------------------------------------- from the shard

void PullManager::OnAssign(const ObjectId& id, const v1::Assign& assign, Instant now) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->needed()) {
    // The shard lists this node as a receiver. The Unwant corrects that.
    Send(id).mutable_unwant()->set_object_id(IdBytes(id));
    return;
  }
  // A Deliver or an Unwant has closed the want that this would answer. After an Unwant the shard
  // has removed this node from the copies, so it would never notify this node of the generation's
  // end.
  if (!pull->want_open || (assign.want() != 0 && assign.want() != pull->want)) return;
  std::optional<PullTarget> target = TargetOf(assign.generation(), assign.info(), now);
  PullSource source{assign.plan_id(), directory::FromProto(assign.sender()),
                    assign.sender_address(), assign.slices()};
  if (!target || !source.sender.valid() || !SlicesWithin(source.slices, target->slices)) return;
  // Plans grow within a session; a smaller one was decided before the plan that runs.
  if (source.plan <= pull->last_plan) return;
  const bool same = pull->target && pull->target->generation == target->generation &&
                    !(DefectActive(Defect::kMovedStartsOver) && !pull->running.empty());
  // One generation has one size. A pull that took another one would write beyond its memory.
  if (same &&
      (pull->target->size_bytes != target->size_bytes || pull->target->slices != target->slices)) {
    return;
  }
  pull->last_plan = source.plan;
  pull->keep = pull->keep || assign.keep();
  // The plan crossed the report that there is no memory, and the shard has listed this node again.
  if (same && pull->parked) return Park(id, *pull);
  // The same sender under a new plan: the pull that runs takes the number, since its report must
  // name the current plan.
  const auto running =
      std::find_if(pull->running.begin(), pull->running.end(), [&source](const Transfer& transfer) {
        return !transfer.cancelling && transfer.source.sender == source.sender &&
               transfer.source.address == source.address && transfer.source.slices == source.slices;
      });
  if (same && running != pull->running.end()) {
    running->source.plan = source.plan;
    return;
  }
  if (!same) {
    DropTarget(id, *pull, absl::AbortedError("another generation was adopted"));
    SetTarget(id, *pull, *std::move(target));
  }
  std::erase_if(pull->next, [&source](const PullSource& earlier) {
    return (earlier.slices & source.slices) != 0;
  });
  Stop(*pull, source.slices);
  pull->next.push_back(std::move(source));
  StartNext(id, *pull);
}

void PullManager::OnDeliver(const ObjectId& id, const v1::Deliver& deliver, Instant now) {
  std::optional<PullTarget> target = TargetOf(deliver.generation(), deliver.info(), now);
  if (!target || deliver.inline_bytes().size() != target->size_bytes) return;
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->needed()) {
    Withdraw(id, target->generation, "this node does not want it any more");
    return;
  }
  const bool same = pull->target && pull->target->generation == target->generation;
  if (same && pull->target->size_bytes != target->size_bytes) return;
  // The shard has answered the Want and forgotten it.
  pull->want_open = false;
  pull->keep = pull->keep || deliver.keep();
  if (!same) {
    DropTarget(id, *pull, absl::AbortedError("another generation was adopted"));
    SetTarget(id, *pull, *std::move(target));
  }
  pull->next.clear();
  pull->delivered = deliver.inline_bytes();
  // No memory for these bytes either: they are withdrawn, and the shard keeps the Want.
  if (pull->parked) return Park(id, *pull);
  Stop(*pull, kAllSlices);
  StartNext(id, *pull);
}

void PullManager::OnVoid(const ObjectId& id, const Generation& generation,
                         const absl::Status& why) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->target || pull->target->generation != generation) return;
  // A Deliver had closed the want, or it was parked for this generation: it is sent again.
  const bool again = pull->delivered || pull->parked;
  DropTarget(id, *pull, why);
  if (!again || !pull->needed()) return;
  pull->want_open = false;
  SendWant(id, *pull);
}

void PullManager::OnDeleted(const ObjectId& id, const Generation& generation,
                            const absl::Status& why) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->needed()) return;
  // The Get is served by another generation, which was put after the deletion.
  if (pull->target && pull->target->generation != generation) return;
  if (DefectActive(Defect::kLateCompletionAfterDelete) && !pull->running.empty()) return;
  // What was bound to the generation ends; the shard has closed the want, or learns so now.
  pull->wanted = pull->fetch = pull->keep = false;
  SendUnwant(id, *pull);
  DropTarget(id, *pull, why);
  Do(EndGets{id, why});
  EraseIfDone(id);
}

void PullManager::OnRefused(const ObjectId& id, uint64_t want, const absl::Status& why) {
  Pull* pull = FindPull(id);
  // The refusal answers a Want that was withdrawn meanwhile. The shard has a later one, which it
  // would keep for ever if this node forgot it.
  if (pull == nullptr || !pull->want_open || (want != 0 && want != pull->want)) return;
  pull->want_open = false;
  GiveUp(id, *pull, why);
  Do(EndGets{id, why});
}

// ---------------------------------------------------------------------------- from the store

void PullManager::OnNoRoom(const ObjectId& id, uint64_t token) {
  if (AwaitsMemory(id, token)) Park(id, *FindPull(id));
}

bool PullManager::Yield(const ObjectId& id, const Generation& generation) {
  Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->target || pull->target->generation != generation) return false;
  // Only a copy without a sender gives way: a pull that runs would have to receive everything
  // again.
  const bool idle = pull->running.empty() && pull->next.empty() && !pull->delivered;
  if (pull->memory != Memory::kHere || !idle) return false;
  const absl::Status why = absl::ResourceExhaustedError("its memory was needed");
  Withdraw(id, generation, why.message());
  DropTarget(id, *pull, why);
  return true;
}

bool PullManager::AwaitsMemory(const ObjectId& id, uint64_t token) const {
  const Pull* pull = FindPull(id);
  return pull != nullptr && pull->memory == Memory::kWaiting && pull->token == token;
}

bool PullManager::OnMemory(const ObjectId& id, uint64_t token, const absl::Status& status) {
  if (!AwaitsMemory(id, token)) return false;
  Pull& pull = *FindPull(id);
  if (status.ok()) {
    pull.memory = Memory::kHere;
    // The shard passed over the Want because there was no memory; now it may name a sender.
    const bool parked = std::exchange(pull.parked, false);
    if (parked && !DefectActive(Defect::kParkedForEver)) AskAgain(id);
    StartNext(id, pull);
    return true;
  }
  pull.token = 0;  // no memory is waited for any more
  // A sender waits for this node: without the report it would stay occupied until its stall
  // timeout.
  for (const PullSource& next : pull.next) {
    v1::PullReport* report = Send(id).mutable_pull_report();
    SetSubject(id, pull.target->generation, report);
    report->set_plan_id(next.plan);
    report->set_code(static_cast<int>(status.code()));
    report->set_message(std::string(status.message()));
  }
  Do(EndGets{id, status});
  GiveUp(id, pull, status);
  return true;
}

void PullManager::OnPullDone(const ObjectId& id, PullEnd end) {
  Pull* pull = FindPull(id);
  PHALANX_CHECK(pull != nullptr, "only a running pull ends");
  const auto ended =
      std::find_if(pull->running.begin(), pull->running.end(),
                   [&end](const Transfer& transfer) { return transfer.number == end.number; });
  PHALANX_CHECK(ended != pull->running.end(), "only a running pull ends");
  Transfer transfer = std::move(*ended);
  pull->running.erase(ended);
  --running_;
  const bool current = pull->target && pull->target->generation == transfer.generation;
  if (current && end.outcome.status.ok()) pull->done |= transfer.source.slices;
  const bool all =
      end.complete || (DefectActive(Defect::kCompleteForPartial) && end.outcome.bytes_received > 0);
  // Another pull has its outcome, too, and ends next.
  const bool complete = current && all && pull->running.empty();
  // OK would be read as "all bytes are here", of a generation that was dropped.
  if (!complete && end.outcome.status.ok() && !current) {
    end.outcome.status = absl::CancelledError("the generation was dropped meanwhile");
  }
  // With another plan under way this report ends nothing at the shard; it only measures the link.
  Report(id, transfer, end, complete && pull->next.empty(), pull->keep);
  if (complete) {
    if (!pull->next.empty()) {
      // The shard goes by its latest plan, which found nothing left to do.
      transfer.source = pull->next.back();
      end.outcome = net::PullOutcome();
      Report(id, transfer, end, true, pull->keep);
    }
    Finish(id, *pull);
  } else if (!pull->needed()) {
    EraseIfDone(id);
  } else {
    StartNext(id, *pull);
  }
}

// ------------------------------------------------------------------------------- registration

std::vector<v1::RegisterWant> PullManager::Register(int shard, int num_shards) {
  std::vector<ObjectId> ids;
  for (const auto& [id, pull] : pulls_) {
    if (ShardOf(id, num_shards) == shard) ids.push_back(id);
  }
  // In the order of ids, so that a simulation replays exactly.
  std::sort(ids.begin(), ids.end());
  std::vector<v1::RegisterWant> wants;
  for (const ObjectId& id : ids) {
    Pull& pull = *FindPull(id);
    pull.last_plan = pull.confirm_plan = pull.order = 0;
    // The new session may know of another generation, for which there is room.
    if (pull.parked) DropTarget(id, pull, absl::OkStatus());
    if (pull.delivered) {
      // The new session knows nothing of the Deliver; it answers the want itself.
      pull.delivered.reset();
      if (pull.running.empty() && pull.memory == Memory::kWaiting) {
        DropTarget(id, pull, absl::OkStatus());
      }
    }
    pull.want_open = pull.needed();
    if (!pull.want_open) continue;
    v1::RegisterWant want;
    want.set_object_id(IdBytes(id));
    want.set_keep(pull.keep);
    want.set_number(pull.want = next_want_++);
    directory::SetName(pull.name, &want);
    directory::SetScope(pull.scope, &want);
    wants.push_back(std::move(want));
  }
  return wants;
}

std::vector<std::pair<ObjectId, Generation>> PullManager::TargetsIn(const Scope& scope) const {
  std::vector<std::pair<ObjectId, Generation>> targets;
  for (const auto& [id, pull] : pulls_) {
    if (!pull->target) continue;
    const Scope& of_target = pull->target->traits.scope;
    if (of_target.name != scope.name || of_target.number > scope.number) continue;
    targets.emplace_back(id, pull->target->generation);
  }
  std::sort(targets.begin(), targets.end());
  return targets;
}

std::optional<NodeKey> PullManager::RunningSender(const ObjectId& id,
                                                  const Generation& generation) const {
  const Pull* pull = FindPull(id);
  if (pull == nullptr) return std::nullopt;
  for (const Transfer& transfer : pull->running) {
    const bool runs = !transfer.cancelling && transfer.generation == generation;
    if (runs) return transfer.source.sender;
  }
  return std::nullopt;
}

bool PullManager::PullsInParts(const ObjectId& id) const {
  const Pull* pull = FindPull(id);
  if (pull == nullptr || !pull->target) return false;
  const uint64_t all = AllSlices(pull->target->slices);
  return std::any_of(pull->running.begin(), pull->running.end(),
                     [all](const Transfer& transfer) { return transfer.source.slices != all; });
}

// ------------------------------------------------------------------------------------ looking

std::vector<PullManager::Running> PullManager::RunningPulls() const {
  std::vector<Running> running;
  for (const auto& [id, pull] : pulls_) {
    for (const Transfer& transfer : pull->running) {
      running.push_back({id, transfer.generation, transfer.source.plan, transfer.number});
    }
  }
  std::sort(running.begin(), running.end(), [](const Running& a, const Running& b) {
    return std::tie(a.id, a.number) < std::tie(b.id, b.number);
  });
  return running;
}

const PullTarget* PullManager::Target(const ObjectId& id) const {
  const Pull* pull = FindPull(id);
  return pull != nullptr && pull->target ? &*pull->target : nullptr;
}

bool PullManager::WaitsForMemory(const ObjectId& id) const {
  const Pull* pull = FindPull(id);
  return pull != nullptr && pull->memory == Memory::kWaiting;
}

bool PullManager::Wants(const ObjectId& id) const {
  const Pull* pull = FindPull(id);
  return pull != nullptr && pull->needed();
}

std::vector<ObjectId> PullManager::WantedByClients() const {
  std::vector<ObjectId> ids;
  for (const auto& [id, pull] : pulls_) {
    if (pull->wanted) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::Status PullManager::CheckInvariants() const {
  size_t running = 0;
  for (const auto& [id, pull] : pulls_) {
    const auto broken = [&id = id](absl::string_view what) {
      return absl::InternalError(absl::StrCat("pull of object ", id.ShortHex(), ": ", what));
    };
    running += pull->running.size();
    if (!pull->needed() && pull->running.empty()) return broken("not wanted, and no pull runs");
    if (!pull->needed() && pull->target) return broken("not wanted, and it has a target");
    if (pull->target.has_value() != (pull->memory != Memory::kNone)) {
      return broken("memory without a target, or a target without memory");
    }
    if (pull->needed() && !pull->want_open && !pull->delivered)
      return broken("wanted, and the shard has no Want");
    const bool idle = pull->memory == Memory::kWaiting && pull->next.empty() && !pull->delivered;
    if (pull->parked && !idle) return broken("parked, and not only waiting for memory");
    if (!pull->needed() && pull->want_open) return broken("not wanted, and the shard has a Want");
    uint64_t slices = 0;
    for (const Transfer& transfer : pull->running) {
      const bool current = pull->target && transfer.generation == pull->target->generation;
      if (current && (slices & transfer.source.slices) != 0) return broken("a slice has two pulls");
      if (current) slices |= transfer.source.slices;
    }
    const bool next = !pull->next.empty() || pull->delivered;
    if (pull->memory == Memory::kHere && pull->running.empty() && next) {
      return broken("it can start, and does not");
    }
  }
  if (running != running_) return absl::InternalError("the number of running pulls is wrong");
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
