#include "src/object_store/memory/memory_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx::object_store {

class MemoryQueue::CountedReservation final : public Reservation {
 public:
  CountedReservation(MemoryQueue& queue, uint64_t bytes)
      : queue_(queue), alive_(queue.turns_.alive()), bytes_(bytes) {
    queue_.reserved_bytes_ += bytes;
  }
  ~CountedReservation() override {
    if (alive_.expired()) return;
    Turns::Turn turn(queue_.turns_);
    queue_.reserved_bytes_ -= bytes_;
    queue_.table_.Unreserve(bytes_);
  }

  uint64_t bytes() const override { return bytes_; }
  // The bytes stay reserved in the table; the caller counts them from now on.
  void Take(uint64_t bytes) {
    PHALANX_CHECK(bytes <= bytes_, "no more is taken than was reserved");
    bytes_ -= bytes;
    queue_.reserved_bytes_ -= bytes;
  }

 private:
  MemoryQueue& queue_;
  const std::weak_ptr<char> alive_;
  uint64_t bytes_;
};

MemoryQueue::MemoryQueue(const StoreOptions& options, Executor& executor, SharedMemory& memory,
                         Turns& turns, RequestTable& requests, ObjectTable& table,
                         PullManager& pulls, MemoryUser& user)
    : options_(options),
      executor_(executor),
      memory_(memory),
      turns_(turns),
      requests_(requests),
      table_(table),
      pulls_(pulls),
      user_(user),
      eviction_(table) {}

// ------------------------------------------------------------------------------------- owners

absl::Status MemoryQueue::CheckFits(const ObjectId& id, uint64_t bytes) const {
  if (bytes <= table_.capacity_bytes()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("object ", id.hex(), " takes ", bytes, " bytes; node ", options_.name,
                   " has memory for ", table_.capacity_bytes(), ": give it a larger --capacity"));
}

void MemoryQueue::Ask(uint64_t size, uint64_t record_bytes, MemoryOwner owner) {
  const uint64_t bytes = size + record_bytes;
  owner.size_bytes = size;
  if (absl::Status fits = CheckFits(owner.object, bytes); !fits.ok()) {
    user_.OnNoMemory(owner, fits);
  } else if (eviction_.TryNow(bytes)) {
    Allocate(bytes, std::move(owner));
  } else {
    const Eviction::Ticket ticket = eviction_.Wait(bytes);
    // A request waits until its deadline; a pull has none, and is parked after a while instead.
    if (Request* request = requests_.Find(owner.request); request != nullptr) {
      request->ticket = ticket;
      requests_.WatchDeadline(*request);
    } else {
      ticket_of_token_.emplace(owner.token, ticket);
      waits_.push_back({executor_.Now() + options_.memory_patience, owner.object, owner.token});
    }
    owners_.emplace(ticket, std::make_pair(bytes, std::move(owner)));
  }
}

void MemoryQueue::AskFrom(Reservation& from, uint64_t bytes, MemoryOwner owner) {
  // Never waits: the bytes were reserved for just this.
  static_cast<CountedReservation&>(from).Take(bytes);
  Allocate(bytes, std::move(owner));
}

void MemoryQueue::Allocate(uint64_t counted, MemoryOwner owner) {
  Request* request = requests_.Find(owner.request);
  // A reservation is a promise of bytes: pages are made when they are taken out of it.
  if (request != nullptr && std::holds_alternative<ScratchPart>(request->part)) {
    std::shared_ptr<Reservation> reserved = std::make_shared<CountedReservation>(*this, counted);
    return requests_.Answer<ScratchPart>(
        *request, absl::StatusOr<std::shared_ptr<Reservation>>(std::move(reserved)));
  }
  allocating_bytes_ += counted;
  const uint64_t size = owner.size_bytes;
  if (auto block = memory_.TryAllocate(size)) {
    found_.push_back({counted, std::move(owner), std::move(block)});
    return;
  }
  memory_.Allocate(size, turns_.Guarded([this, counted, owner = std::move(owner)](
                                            absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
    OnAllocated(counted, owner, std::move(result));
  }));
}

void MemoryQueue::OnAllocated(uint64_t counted, const MemoryOwner& owner,
                              absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
  allocating_bytes_ -= counted;
  // The request can have ended meanwhile: in this turn, or while pages were made on another thread.
  const bool wanted = user_.StillWants(owner);
  if (wanted && result.ok()) return user_.OnMemory(owner, *std::move(result));
  // Before the user is notified, whose next request may fit into these bytes.
  table_.Unreserve(counted);
  if (wanted) user_.OnNoMemory(owner, result.status());
}

void MemoryQueue::CancelTicket(Eviction::Ticket ticket) {
  if (ticket == 0) return;
  eviction_.Cancel(ticket);
  owners_.erase(ticket);
}

void MemoryQueue::Forget(Request& request) { CancelTicket(std::exchange(request.ticket, 0)); }

void MemoryQueue::ForgetToken(uint64_t token) {
  const auto it = ticket_of_token_.find(token);
  if (it == ticket_of_token_.end()) return;  // being allocated: OnAllocated gives it back
  CancelTicket(it->second);
  ticket_of_token_.erase(it);
}

// ------------------------------------------------------------------------------- reservations

RequestId MemoryQueue::Reserve(ClientId client, const ObjectId& purpose, uint64_t bytes,
                               Instant deadline, ReserveDone done) {
  Request& request = requests_.New(client, purpose, deadline, ScratchPart{std::move(done)});
  const RequestId id = request.id;
  if (absl::Status status = requests_.Admit(client, purpose); !status.ok()) {
    requests_.Fail(request, status);
  } else {
    Ask(bytes, 0, MemoryOwner{id, purpose, 0, {}});
  }
  return id;
}

void MemoryQueue::AllocateScratch(Reservation& from, uint64_t bytes, ScratchDone done) {
  static_cast<CountedReservation&>(from).Take(bytes);
  // The scratch block counts by itself from now on, and its bytes are free when it ends.
  std::shared_ptr<Reservation> counted = std::make_shared<CountedReservation>(*this, bytes);
  memory_.Allocate(bytes,
                   turns_.Guarded([counted = std::move(counted), done = std::move(done)](
                                      absl::StatusOr<std::shared_ptr<MemoryBlock>> block) mutable {
                     if (!block.ok()) return done(block.status());
                     done(ScratchBlock{*std::move(block), std::move(counted)});
                   }));
}

// ------------------------------------------------------------------------------- what happens

bool MemoryQueue::HandOutFound() {
  if (found_.empty()) return false;
  for (Found& found : std::exchange(found_, {})) {
    OnAllocated(found.counted, found.owner, std::move(found.block));
  }
  return true;
}

bool MemoryQueue::HandOut() {
  const bool found = HandOutFound();
  if (eviction_.waiting() == 0) return found;
  const Eviction::Decisions decisions = eviction_.Decide(executor_.Now());
  for (const Eviction::Ticket ticket : decisions.granted) {
    auto [bytes, owner] = std::move(owners_.extract(ticket).mapped());
    // Before Allocate: a pull whose memory is being made does not wait any more, and is not parked.
    ticket_of_token_.erase(owner.token);
    if (Request* request = requests_.Find(owner.request); request != nullptr) request->ticket = 0;
    Allocate(bytes, std::move(owner));
  }
  for (Copy* copy : decisions.ask) user_.RequestEviction(copy);
  bool given_up = false;
  // Yield refuses if a sender was assigned since; then the request at the front still waits.
  for (const Copy* copy : decisions.give_up) {
    given_up = pulls_.Yield(copy->id, copy->generation) || given_up;
  }
  return found || given_up || !decisions.granted.empty() || !decisions.ask.empty();
}

void MemoryQueue::ExpireWaits() {
  while (!waits_.empty() && waits_.front().until <= executor_.Now()) {
    const MemoryWait wait = waits_.front();
    waits_.pop_front();
    // A wait that ended otherwise has left its entry behind.
    if (ticket_of_token_.contains(wait.token)) pulls_.OnNoRoom(wait.object, wait.token);
  }
}

Instant MemoryQueue::NextDeadline() {
  while (!waits_.empty() && !ticket_of_token_.contains(waits_.front().token)) waits_.pop_front();
  const Instant next = eviction_.NextDeadline();
  return waits_.empty() ? next : std::min(next, waits_.front().until);
}

absl::Status MemoryQueue::CheckInvariants() const {
  if (table_.reserved_bytes() != allocating_bytes_ + reserved_bytes_) {
    return absl::InternalError("memory is reserved without an owner");
  }
  if (owners_.size() != eviction_.waiting()) {
    return absl::InternalError("a request for memory waits without an owner, or the reverse");
  }
  for (const auto& [ticket, waiting] : owners_) {
    const RequestId id = waiting.second.request;
    const Request* request = requests_.Find(id);
    const bool waits = request != nullptr && request->stage == Request::Stage::kWaiting;
    if (id != 0 && (!waits || request->ticket != ticket)) {
      return absl::InternalError("a request that does not wait is in the queue");
    }
  }
  for (const auto& [token, ticket] : ticket_of_token_) {
    if (!owners_.contains(ticket)) return absl::InternalError("a pull waits without a ticket");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
