#include "src/client/ps/snapshot_store.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {
namespace {

constexpr char kNameSpace[] = "phalanx.ps";
// Longer than an ended scope refuses what comes late.
constexpr absl::Duration kEndTtl = absl::Hours(1);

absl::Duration Left(Instant until) {
  return std::max(absl::ZeroDuration(), until - MonotonicNow());
}

}  // namespace

SnapshotStore::SnapshotStore(std::shared_ptr<Client> client, std::string part, uint64_t life,
                             uint32_t copies)
    : client_(std::move(client)), part_(std::move(part)), writer_{.life = life}, copies_(copies) {}

// ---- slots

ObjectId SnapshotStore::SlotId(int slot) const {
  return client_->Id(kNameSpace, absl::StrCat(part_, "/base/", slot));
}

absl::StatusOr<std::optional<SnapshotStore::Slot>> SnapshotStore::ReadSlot(int slot,
                                                                           Instant until) const {
  PHALANX_ASSIGN_OR_RETURN(const bool there, client_->Contains(SlotId(slot), Left(until)).Wait());
  if (!there) return std::nullopt;
  const absl::StatusOr<Buffer> bytes =
      client_->Get(SlotId(slot), GetOptions{.timeout = Left(until)}).Wait();
  // Its hour has ended in between.
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  PHALANX_RETURN_IF_ERROR(bytes.status());
  ByteReader reader(bytes->view());
  Slot content;
  content.base = reader.U64();
  content.ended = reader.U8() != 0;
  if (!reader.Finish().ok()) {
    return absl::DataLossError(absl::StrCat("base ", slot, " of ", part_, " is no number"));
  }
  return content;
}

// An object never changes, so the old one goes first.
absl::Status SnapshotStore::WriteSlot(int slot, const Slot& content, Instant until) {
  PHALANX_RETURN_IF_ERROR(DeleteSlot(slot, until));
  std::string bytes;
  ByteWriter out(bytes);
  out.U64(content.base);
  out.U8(content.ended ? 1 : 0);
  PutOptions options = Options({}, Left(until));
  if (content.ended) options.ttl = kEndTtl;
  PHALANX_ASSIGN_OR_RETURN(const PutResult put,
                           client_->Put(SlotId(slot), bytes, options).Wait(Left(until)));
  if (!put.already_existed) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("another life has written base ", slot, " of ", part_));
}

absl::Status SnapshotStore::DeleteSlot(int slot, Instant until) {
  PHALANX_ASSIGN_OR_RETURN(const bool there, client_->Contains(SlotId(slot), Left(until)).Wait());
  if (!there) return absl::OkStatus();
  const absl::Status deleted = client_->Delete(SlotId(slot), Left(until)).Wait().status();
  return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
}

// What the run before has left goes after an hour, and this run can last longer: its marks would
// not be found any more.
absl::Status SnapshotStore::FindBase(Instant until) {
  bool stays = false;
  for (int slot = 0; slot < 2; ++slot) {
    PHALANX_ASSIGN_OR_RETURN(const std::optional<Slot> content, ReadSlot(slot, until));
    if (!content.has_value() || content->base < base_) continue;
    if (content->base > base_) stays = false;
    base_ = content->base;
    if (content->ended) {
      if (!stays) base_slot_ = 1 - slot;
    } else {
      stays = true;
      base_slot_ = slot;
    }
  }
  if (base_ == 0 || stays) return absl::OkStatus();
  return WriteSlot(base_slot_, {.base = base_}, until);
}

// ---- marks and snapshots

// The names of marks and snapshots are not kept in the client, as Client::Id would: each is used
// for one object, and a server makes them as long as it runs.

// Marks are found by their place in their run alone: a next life knows nothing else.
ObjectId SnapshotStore::MarkId(uint64_t number) const {
  return ObjectId::FromName(kNameSpace, absl::StrCat(part_, "/mark/", base_, "/", number - base_));
}

// Those with as many zeros at their end are superseded together.
Scope SnapshotStore::MarkScope(uint64_t number) const {
  return MarksWithZeros(std::countr_zero(number - base_), number);
}

Scope SnapshotStore::MarksWithZeros(int zeros, uint64_t number) const {
  return {absl::StrCat("phalanx.ps/", part_, "/mark", zeros), number};
}

// Two attempts have different bytes, and an object never changes.
ObjectId SnapshotStore::SnapshotId(uint64_t number, const Writer& writer) const {
  return ObjectId::FromName(kNameSpace, absl::StrCat(part_, "/", number, "/life", writer.life,
                                                     "/attempt", writer.attempt));
}

std::string SnapshotStore::MarkBytes(const Writer& writer) {
  std::string bytes;
  ByteWriter out(bytes);
  out.U64(writer.life);
  out.U64(writer.attempt);
  return bytes;
}

PutOptions SnapshotStore::Options(Scope scope, absl::Duration timeout) const {
  PutOptions options;
  // One on the host of this server, and the others elsewhere.
  options.copies = static_cast<int>(copies_) + 1;
  options.wait_for_copies = true;
  options.scope = std::move(scope);
  options.timeout = timeout;
  return options;
}

// From the highest bit down, as the table in the header shows: so many questions as there are bits,
// whatever number it is.
absl::StatusOr<std::optional<SnapshotStore::Found>> SnapshotStore::Find(absl::Duration timeout) {
  const Instant until = MonotonicNow() + timeout;
  PHALANX_RETURN_IF_ERROR(FindBase(until));
  uint64_t found = 0;
  for (int bit = kMarkBits - 1; bit >= 0; --bit) {
    const uint64_t next = found | uint64_t{1} << bit;
    PHALANX_ASSIGN_OR_RETURN(const bool there,
                             client_->Contains(MarkId(base_ + next), Left(until)).Wait());
    if (there) found = next;
  }
  newest_ = base_ + found;
  if (found == 0) return std::nullopt;
  PHALANX_ASSIGN_OR_RETURN(
      const Buffer mark, client_->Get(MarkId(newest_), GetOptions{.timeout = Left(until)}).Wait());
  ByteReader reader(mark.view());
  Writer writer;
  writer.life = reader.U64();
  writer.attempt = reader.U64();
  if (!reader.Finish().ok()) {
    return absl::DataLossError(absl::StrCat("mark ", newest_, " of ", part_, " is no mark"));
  }
  GetOptions options{.timeout = Left(until)};
  // The mark was made when all copies were there, so waiting for one could be waiting for ever.
  options.on_lost = GetOptions::OnLost::kFail;
  absl::StatusOr<Buffer> bytes = client_->Get(SnapshotId(newest_, writer), options).Wait();
  if (!bytes.ok()) {
    return absl::Status(
        absl::IsDeadlineExceeded(bytes.status()) ? bytes.status().code()
                                                 : absl::StatusCode::kDataLoss,
        absl::StrCat("snapshot ", newest_, " of ", part_, ": ", bytes.status().message()));
  }
  return Found{writer.attempt, *std::move(bytes)};
}

// The base stays in a slot, as that of an earlier run does: a next life counts from there.
absl::Status SnapshotStore::BeginBehind(uint64_t number, absl::Duration timeout) {
  if (number <= newest_) return absl::OkStatus();
  base_ = newest_ = number;
  return WriteSlot(base_slot_, {.base = base_}, MonotonicNow() + timeout);
}

// The number counts when its mark is made; until then it is that of the next attempt.
void SnapshotStore::Write(uint64_t attempt, absl::string_view bytes, absl::Duration patience) {
  writer_.attempt = attempt;
  snapshot_ = client_->Put(SnapshotId(newest_ + 1, writer_), bytes,
                           Options({absl::StrCat("phalanx.ps/", part_), newest_ + 1}, patience));
  snapshot_under_way_ = true;
}

bool SnapshotStore::WritePart(uint64_t attempt, absl::string_view bytes, uint64_t size) {
  if (size >= bytes.size()) {
    Write(attempt, bytes);
    return snapshot_.Wait().ok();
  }
  writer_.attempt = attempt;
  absl::StatusOr<WritableBuffer> part =
      client_->Create(SnapshotId(newest_ + 1, writer_), bytes.size(),
                      Options({absl::StrCat("phalanx.ps/", part_), newest_ + 1}, kWritePatience));
  if (!part.ok()) return false;
  std::copy_n(bytes.data(), size, part->span().data());
  if (!part->Publish(size).ok()) return false;
  // Behind its answer the node has all that was sent before.
  return client_->Contains(SnapshotId(newest_ + 1, writer_), kWritePatience).Wait().ok();
}

bool SnapshotStore::ready() const {
  return (snapshot_under_way_ && snapshot_.ready()) || (mark_under_way_ && mark_.ready());
}

// Two steps: the snapshot with its copies, then its mark. Between them a death leaves bytes that
// nothing leads to, which the scope of a later number frees.
std::optional<absl::Status> SnapshotStore::TakeWritten() {
  ends_.erase(std::remove_if(ends_.begin(), ends_.end(),
                             [](const Future<Done>& end) { return end.ready(); }),
              ends_.end());
  if (snapshot_under_way_ && snapshot_.ready()) {
    snapshot_under_way_ = false;
    const absl::StatusOr<PutResult> put = snapshot_.Wait();
    if (!put.ok()) return put.status();
    // Lives begin at 0 again in the next run of a job, whose bytes are others.
    if (put->already_existed) return Foreign();
    mark_ = client_->Put(MarkId(newest_ + 1), MarkBytes(writer_),
                         Options(MarkScope(newest_ + 1), kWritePatience));
    mark_under_way_ = true;
  }
  if (!mark_under_way_ || !mark_.ready()) return std::nullopt;
  mark_under_way_ = false;
  const absl::StatusOr<PutResult> marked = mark_.Wait();
  if (!marked.ok()) return marked.status();
  // The number is taken, by this life or an earlier one: the next attempt has another.
  ++newest_;
  EndSmallerMarks(newest_);
  if (marked->already_existed) return Foreign();
  return absl::OkStatus();
}

absl::Status SnapshotStore::Foreign() const {
  return absl::AlreadyExistsError(
      absl::StrCat("after snapshot ", newest_, " of ", part_, " there is one of an earlier life"));
}

// A mark with more zeros is found before those with fewer, and leads past them.
void SnapshotStore::EndSmallerMarks(uint64_t number) {
  for (int zeros = 0; zeros < std::countr_zero(number - base_); ++zeros) {
    ends_.push_back(client_->EndScope(MarksWithZeros(zeros, number)));
  }
}

void SnapshotStore::FreeOlder() {
  // The newest itself stays until the next one has its copies.
  if (newest_ > base_ + 1) {
    ends_.push_back(client_->EndScope({absl::StrCat("phalanx.ps/", part_), newest_ - 1}));
  }
}

// The end is there before anything that leads to the run goes. An attempt may be under way, or its
// mark be there without an answer, so the number behind the newest one is of this run, too.
absl::Status SnapshotStore::End(absl::Duration timeout) {
  if (newest_ == 0) return absl::OkStatus();
  const Instant until = MonotonicNow() + timeout;
  const uint64_t last = newest_ + 1;
  const int slot = 1 - base_slot_;
  absl::Status status = WriteSlot(slot, {.base = last, .ended = true}, until);
  if (status.ok()) status = DeleteSlot(base_slot_, until);
  ends_.push_back(client_->EndScope({absl::StrCat("phalanx.ps/", part_), last}));
  for (int zeros = 0; zeros <= kMarkBits; ++zeros) {
    if ((last - base_) >> zeros == 0) break;
    ends_.push_back(client_->EndScope(MarksWithZeros(zeros, last)));
  }
  for (const Future<Done>& end : ends_) end.Wait(Left(until)).IgnoreError();
  return status;
}

}  // namespace phalanx::ps::internal
