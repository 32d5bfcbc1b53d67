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
// The life in a mark that says that the job has ended.
constexpr uint64_t kEnded = UINT64_MAX;
// Longer than an ended scope refuses what comes late.
constexpr absl::Duration kEndedMarkTtl = absl::Hours(1);

}  // namespace

SnapshotStore::SnapshotStore(std::shared_ptr<Client> client, std::string part, uint64_t life,
                             uint32_t copies)
    : client_(std::move(client)), part_(std::move(part)), writer_{.life = life}, copies_(copies) {}

// Marks are found by their number alone: a next life knows nothing else.
ObjectId SnapshotStore::MarkId(uint64_t number) const {
  return client_->Id(kNameSpace, absl::StrCat(part_, "/mark/", number));
}

// Those with as many zeros at their end are superseded together.
Scope SnapshotStore::MarkScope(uint64_t number) const {
  return {absl::StrCat("phalanx.ps/", part_, "/mark", std::countr_zero(number)), number};
}

// Two attempts have different bytes, and an object never changes.
ObjectId SnapshotStore::SnapshotId(uint64_t number, const Writer& writer) const {
  return client_->Id(kNameSpace, absl::StrCat(part_, "/", number, "/life", writer.life, "/attempt",
                                              writer.attempt));
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
  const auto left = [until] { return std::max(absl::ZeroDuration(), until - MonotonicNow()); };
  uint64_t number = 0;
  for (int bit = kMarkBits - 1; bit >= 0; --bit) {
    const uint64_t next = number | uint64_t{1} << bit;
    PHALANX_ASSIGN_OR_RETURN(const bool there, client_->Contains(MarkId(next), left()).Wait());
    if (there) number = next;
  }
  // Also of an ended job: its scopes refuse smaller numbers for a while.
  newest_ = number;
  if (number == 0) return std::nullopt;
  PHALANX_ASSIGN_OR_RETURN(const Buffer mark,
                           client_->Get(MarkId(number), GetOptions{.timeout = left()}).Wait());
  ByteReader reader(mark.view());
  Writer writer;
  writer.life = reader.U64();
  writer.attempt = reader.U64();
  if (!reader.Finish().ok()) {
    return absl::DataLossError(absl::StrCat("mark ", number, " of ", part_, " is no mark"));
  }
  if (writer.life == kEnded) return std::nullopt;
  GetOptions options{.timeout = left()};
  // The mark was made when all copies were there, so waiting for one could be waiting for ever.
  options.on_lost = GetOptions::OnLost::kFail;
  absl::StatusOr<Buffer> bytes = client_->Get(SnapshotId(number, writer), options).Wait();
  if (!bytes.ok()) {
    return absl::Status(
        absl::IsDeadlineExceeded(bytes.status()) ? bytes.status().code()
                                                 : absl::StatusCode::kDataLoss,
        absl::StrCat("snapshot ", number, " of ", part_, ": ", bytes.status().message()));
  }
  return Found{number, *std::move(bytes)};
}

// The number counts when its mark is made; until then it is that of the next attempt.
void SnapshotStore::Write(absl::string_view bytes, absl::Duration patience) {
  ++writer_.attempt;
  snapshot_ = client_->Put(SnapshotId(newest_ + 1, writer_), bytes,
                           Options({absl::StrCat("phalanx.ps/", part_), newest_ + 1}, patience));
  snapshot_under_way_ = true;
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
  for (int zeros = 0; zeros < std::countr_zero(number); ++zeros) {
    ends_.push_back(
        client_->EndScope({absl::StrCat("phalanx.ps/", part_, "/mark", zeros), number}));
  }
}

void SnapshotStore::FreeOlder() {
  // The newest itself stays until the next one has its copies.
  if (newest_ > 1) {
    ends_.push_back(client_->EndScope({absl::StrCat("phalanx.ps/", part_), newest_ - 1}));
  }
}

absl::Status SnapshotStore::End(absl::Duration timeout) {
  if (newest_ == 0) return absl::OkStatus();
  // A power of two, so that this one mark leads to itself, and all others are ended by it.
  const uint64_t last = std::bit_ceil(newest_ + 1);
  PutOptions options = Options(MarkScope(last), timeout);
  options.ttl = kEndedMarkTtl;
  const absl::Status status =
      client_->Put(MarkId(last), MarkBytes({.life = kEnded}), options).Wait(timeout).status();
  ends_.push_back(client_->EndScope({absl::StrCat("phalanx.ps/", part_), last}));
  EndSmallerMarks(last);
  for (const Future<Done>& end : ends_) end.Wait(timeout).IgnoreError();
  return status;
}

}  // namespace phalanx::ps::internal
