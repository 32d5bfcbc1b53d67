#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/object_store/store_impl.h"
#include "src/object_store/subject.h"

namespace phalanx::object_store {

// -------------------------------------------------------------------------------------- memory

uint64_t Store::Impl::RecordBytes(const Traits& traits) const {
  // What it refers to is listed with it, and in the tables of this node and of the shards.
  constexpr uint64_t kTables = 5;
  return options_.record_bytes + traits.metadata.size() + traits.reduced_from.size() +
         traits.refers_to.size() * kTables;
}

absl::Status Store::Impl::TooLarge(const ObjectId& id, uint64_t bytes) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("object ", id.hex(), " takes ", bytes, " bytes; node ", options_.name,
                   " has memory for ", table_.capacity_bytes(), ": give it a larger --capacity"));
}

void Store::Impl::AskMemory(uint64_t size, uint64_t record_bytes, MemoryOwner owner) {
  const uint64_t bytes = size + record_bytes;
  owner.size_bytes = size;
  if (bytes > table_.capacity_bytes()) {
    OnNoMemory(owner, TooLarge(owner.object, bytes));
  } else if (eviction_.TryNow(bytes)) {
    Allocate(bytes, std::move(owner));
  } else {
    const Eviction::Ticket ticket = eviction_.Wait(bytes);
    if (Request* request = FindRequest(owner.request); request != nullptr) {
      request->ticket = ticket;
      WatchDeadline(*request);
    } else {
      ticket_of_token_.emplace(owner.token, ticket);
      impatient_.push_back({executor_.Now() + options_.memory_patience, owner.object, owner.token});
    }
    owners_.emplace(ticket, std::make_pair(bytes, std::move(owner)));
  }
}

void Store::Impl::Allocate(uint64_t counted, MemoryOwner owner) {
  Request* request = FindRequest(owner.request);
  if (request != nullptr && std::holds_alternative<ScratchPart>(request->part)) {
    return Reserved(*request, counted);
  }
  allocating_bytes_ += counted;
  const uint64_t size = owner.size_bytes;
  memory_.Allocate(size, Guarded([this, counted, owner = std::move(owner)](
                                     absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
                     allocating_bytes_ -= counted;
                     OnAllocated(counted, owner, std::move(result));
                   }));
}

void Store::Impl::OnAllocated(uint64_t bytes, const MemoryOwner& owner,
                              absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
  Request* request = FindRequest(owner.request);
  const bool for_pull = owner.request == 0 && pulls_.AwaitsMemory(owner.object, owner.token);
  const bool wanted =
      for_pull || (request != nullptr && request->stage == Request::Stage::kWaiting);
  if (!wanted || !result.ok()) {
    table_.Unreserve(bytes);
    if (wanted) OnNoMemory(owner, result.status());
  } else if (request == nullptr) {
    std::unique_ptr<Copy> copy =
        NewCopy(owner.object, owner.target.generation, owner.target.size_bytes, owner.target.slices,
                TraitsOf(owner.target), *std::move(result));
    copy->asked_for = owner.target.asked_for;
    copy->standing = Standing::kAdopted;
    HoldReferences(*table_.Add(std::move(copy)));
    Touch(owner.object);
    pulls_.OnMemory(owner.object, owner.token, absl::OkStatus());
    AnswerServes(owner.object, /*expired=*/0);
  } else if (std::holds_alternative<PutPart>(request->part)) {
    FinishPut(*request, *std::move(result));
  } else {
    FinishCreate(*request, *std::move(result));
  }
}

void Store::Impl::OnNoMemory(const MemoryOwner& owner, const absl::Status& why) {
  if (Request* request = FindRequest(owner.request); request != nullptr) {
    AnswerError(*request, why);
  } else {
    pulls_.OnMemory(owner.object, owner.token, why);
  }
}

void Store::Impl::ForgetTicket(Eviction::Ticket ticket) {
  if (ticket == 0) return;
  eviction_.Cancel(ticket);
  owners_.erase(ticket);
}

void Store::Impl::LoseFetchPatience() {
  while (!fetches_.empty() && fetches_.front().first <= executor_.Now()) {
    const ObjectId id = fetches_.front().second;
    fetches_.pop_front();
    if (pulls_.Idle(id)) {
      pulls_.EndFetch(id);
    } else if (pulls_.Fetches(id)) {
      fetches_.emplace_back(executor_.Now() + options_.fetch_patience, id);
    }
  }
}

void Store::Impl::LoseMemoryPatience() {
  while (!impatient_.empty() && impatient_.front().when <= executor_.Now()) {
    const Impatient waiting = impatient_.front();
    impatient_.pop_front();
    if (ticket_of_token_.contains(waiting.token)) pulls_.OnNoRoom(waiting.object, waiting.token);
  }
}

bool Store::Impl::HandOutMemory() {
  if (eviction_.waiting() == 0) return false;
  const Eviction::Decisions decisions = eviction_.Decide(executor_.Now());
  for (const Eviction::Ticket ticket : decisions.granted) {
    auto [bytes, owner] = std::move(owners_.extract(ticket).mapped());
    ticket_of_token_.erase(owner.token);
    if (Request* request = FindRequest(owner.request); request != nullptr) request->ticket = 0;
    Allocate(bytes, std::move(owner));
  }
  for (Copy* copy : decisions.ask) {
    if (DefectActive(Defect::kEvictWithoutAsking)) {
      EvictCopy(copy);
    } else {
      SendEvictRequest(*copy);
    }
  }
  bool given_up = false;
  for (const Copy* copy : decisions.give_up) {
    given_up = pulls_.Yield(copy->id, copy->generation) || given_up;
  }
  return given_up || !decisions.granted.empty() || !decisions.ask.empty();
}

std::unique_ptr<Copy> Store::Impl::NewCopy(const ObjectId& id, const Generation& generation,
                                           uint64_t size, int slices, Traits traits,
                                           std::shared_ptr<MemoryBlock> block) {
  auto copy = std::make_unique<Copy>();
  copy->id = id;
  copy->generation = generation;
  copy->size_bytes = size;
  copy->slices = slices;
  copy->record_bytes = RecordBytes(traits);
  copy->metadata = std::move(traits.metadata);
  copy->reduced_from = std::move(traits.reduced_from);
  copy->refers_to = std::move(traits.refers_to);
  copy->owned = traits.owned;
  copy->buffer =
      std::make_shared<net::TransferBuffer>(net::SliceLayout{size, slices}, block->bytes(), block);
  copy->block = std::move(block);
  return copy;
}

void Store::Impl::DropCopy(Copy* copy, const absl::Status& why) {
  VoidReaders(copy, why);
  copy->buffer->Close(why);
  if (data_plane_ != nullptr) data_plane_->AbortPushes(copy->id, copy->generation, why);
  LeaveReferences(*copy);
  stickies_.erase({copy->id, copy->generation});
  table_.Detach(copy);
}

void Store::Impl::EvictCopy(Copy* copy) {
  ++evictions_;
  Touch(copy->id);
  LeaveReferences(*copy);
  stickies_.erase({copy->id, copy->generation});
  // Who reads it or is being sent it goes on; the memory is free after that.
  table_.Detach(copy);
}

// ------------------------------------------------------------------- what was decided of pulls

void Store::Impl::Carry(TellShard& effect) { channel_.Send(effect.id, std::move(effect.message)); }

void Store::Impl::Carry(ReserveMemory& effect) {
  MemoryOwner owner{0, effect.id, effect.token, std::move(effect.target)};
  const uint64_t records = RecordBytes(TraitsOf(owner.target));
  AskMemory(owner.target.size_bytes, records, std::move(owner));
}

void Store::Impl::Carry(ForgetMemory& effect) {
  const auto it = ticket_of_token_.find(effect.token);
  if (it == ticket_of_token_.end()) return;  // being allocated: given back when it comes
  ForgetTicket(it->second);
  ticket_of_token_.erase(it);
}

void Store::Impl::Carry(StartPull& effect) {
  Copy* copy = table_.Find(effect.id, effect.generation);
  PHALANX_CHECK(copy != nullptr, "a pull starts when its memory is here");
  const uint64_t serial = next_number_++;
  table_.Pin(copy);
  RunningPull& running = running_[effect.id];
  running = {.serial = serial,
             .copy = copy,
             .bytes_at_progress = copy->buffer->bytes_present(),
             .progress_at = executor_.Now(),
             .progress = std::make_shared<net::PullProgress>()};
  ++pulls_started_;
  bool missing = false;
  for (int slice = 0; slice < copy->buffer->layout().slices; ++slice) {
    const bool asked = (effect.source.slices >> slice & 1) != 0;
    missing =
        missing || (asked && copy->buffer->watermark(slice) < copy->buffer->layout().Size(slice));
  }
  if (!missing) {
    OnPullDone(effect.id, serial, net::PullOutcome());
    return;
  }
  net::PullSpec spec{effect.source.sender, effect.source.address, effect.id,
                     effect.generation,    copy->buffer,          effect.source.slices,
                     running.progress};
  running.handle = data_plane_->StartPull(
      std::move(spec), Guarded([this, id = effect.id, serial](const net::PullOutcome& outcome) {
        OnPullDone(id, serial, outcome);
      }));
  if (next_progress_.infinite()) next_progress_ = executor_.Now() + options_.progress_interval;
}

void Store::Impl::Carry(CancelPull& effect) {
  const auto it = running_.find(effect.id);
  if (it != running_.end()) data_plane_->CancelPull(it->second.handle);
}

void Store::Impl::OnPullDone(const ObjectId& id, uint64_t serial, const net::PullOutcome& outcome) {
  const auto it = running_.find(id);
  if (it == running_.end() || it->second.serial != serial) return;
  Copy* copy = it->second.copy;
  running_.erase(it);
  if (!outcome.status.ok()) ++pulls_failed_;
  PullEnd end;
  end.outcome = outcome;
  end.complete = copy->buffer->complete();
  for (int slice = 0; slice < copy->buffer->layout().slices; ++slice) {
    end.watermarks.push_back(copy->buffer->watermark(slice));
  }
  table_.Unpin(copy);
  if (running_.empty()) next_progress_ = Instant::Infinite();
  pulls_.OnPullDone(id, std::move(end));
}

void Store::Impl::Carry(FillCopy& effect) {
  Copy* copy = table_.Find(effect.id, effect.generation);
  PHALANX_CHECK(copy != nullptr, "bytes are written when their memory is here");
  net::TransferBuffer& buffer = *copy->buffer;
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    // What streaming readers may have seen is not written again.
    const uint64_t from = buffer.watermark(slice);
    const absl::Span<char> into = buffer.slice(slice).subspan(from);
    if (into.empty()) continue;
    std::memcpy(into.data(), effect.bytes.data() + buffer.layout().Begin(slice) + from,
                into.size());
    buffer.Publish(slice, buffer.layout().Size(slice));
  }
}

void Store::Impl::Carry(DropPartial& effect) {
  Touch(effect.id);
  Copy* copy = table_.Find(effect.id, effect.generation);
  if (copy != nullptr) DropCopy(copy, effect.why);
}

void Store::Impl::Carry(CompleteCopy& effect) {
  Touch(effect.id);
  Copy* copy = table_.Find(effect.id, effect.generation);
  PHALANX_CHECK(copy != nullptr, "a copy is complete while it is in the table");
  copy->buffer->Close(absl::OkStatus());
  table_.MarkComplete(copy);
  if (effect.keep) table_.MakePrimary(copy);
  EndReaders(copy);
}

void Store::Impl::Carry(EndGets& effect) { EndAllGets(effect.id, effect.why); }

void Store::Impl::SendProgress() {
  std::map<int, v1::NodeMessage> by_shard;
  for (const PullManager::Running& pull : pulls_.RunningPulls()) {
    RunningPull& running = running_.at(pull.id);
    v1::Progress* progress = by_shard[channel_.ShardOf(pull.id)].mutable_progress();
    v1::Progress::Pull* out = progress->add_pulls();
    SetSubject(pull.id, pull.generation, out);
    out->set_plan_id(pull.plan);
    const net::TransferBuffer& buffer = *running.copy->buffer;
    uint64_t present = 0;
    for (int slice = 0; slice < buffer.layout().slices; ++slice) {
      out->add_watermarks(buffer.watermark(slice));
      present += buffer.watermark(slice);
    }
    out->set_starved_ns(running.progress->starved_ns.load(std::memory_order_relaxed));
    const Instant now = executor_.Now();
    const double seconds = absl::ToDoubleSeconds(now - std::exchange(running.progress_at, now));
    const uint64_t bytes = present - std::exchange(running.bytes_at_progress, present);
    if (seconds > 0) out->set_bytes_per_second(static_cast<double>(bytes) / seconds);
  }
  for (auto& [shard, message] : by_shard) {
    message.mutable_progress()->set_used_bytes(table_.used_bytes());
    channel_.SendTo(shard, std::move(message));
  }
  if (by_shard.size() == static_cast<size_t>(channel_.num_shards())) {
    next_usage_ = Instant::Infinite();
    told_used_bytes_ = table_.used_bytes();
  }
  next_progress_ =
      running_.empty() ? Instant::Infinite() : executor_.Now() + options_.progress_interval;
}

// Tools show it, and a node that leaves is helped by those that have room.
void Store::Impl::TellUsage() {
  next_usage_ = Instant::Infinite();
  told_used_bytes_ = table_.used_bytes();
  for (int shard = 0; shard < channel_.num_shards(); ++shard) {
    v1::NodeMessage message;
    message.mutable_progress()->set_used_bytes(told_used_bytes_);
    channel_.SendTo(shard, std::move(message));
  }
}

// -------------------------------------------------------------------------------------- pushes

absl::StatusOr<net::ServeGrant> Store::Impl::Serve(const net::ServeRequest& request) {
  absl::StatusOr<Copy*> copy = pushes_.Begin(request);
  if (!copy.ok()) return copy.status();
  net::ServeGrant grant;
  grant.from = (*copy)->buffer;
  grant.pin = std::shared_ptr<void>(static_cast<void*>(*copy),
                                    [end = Guarded([this](Copy* pushed) { pushes_.End(pushed); })](
                                        void* pushed) mutable { end(static_cast<Copy*>(pushed)); });
  return grant;
}

void Store::Impl::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply) {
  const PullTarget* target = pulls_.Target(request.object);
  const bool about_to_begin = pulls_.Wants(request.object) &&
                              table_.Find(request.object, request.generation) == nullptr &&
                              (target == nullptr || target->generation == request.generation);
  if (!about_to_begin || waiting_serves_.full()) {
    reply(Serve(request));
    return;
  }
  const uint64_t serial = next_number_++;
  const absl::Duration patience = std::min(options_.serve_patience, request.patience);
  waiting_serves_.Add(serial, request, std::move(reply));
  executor_.RunAt(executor_.Now() + patience,
                  Guarded([this, id = request.object, serial] { AnswerServes(id, serial); }));
}

void Store::Impl::AnswerServes(const ObjectId& id, uint64_t expired) {
  const auto is_here = [this](const net::ServeRequest& request) {
    return table_.Find(request.object, request.generation) != nullptr;
  };
  for (ServeWaitlist::Waiting& waiting : waiting_serves_.Take(id, expired, is_here)) {
    waiting.reply(Serve(waiting.request));
  }
}

}  // namespace phalanx::object_store
