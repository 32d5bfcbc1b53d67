#include "src/client/spmd/fold_tree.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/client/access.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

// An object with metadata is an error: its code and its text.
constexpr size_t kMaxErrorBytes = 1000;
// Pieces that it has asked for and not folded: one comes while another one is folded.
constexpr size_t kAskedPieces = 3;
constexpr absl::Duration kLookEvery = absl::Milliseconds(20);
constexpr absl::Duration kErrorPatience = absl::Seconds(10);

std::string ErrorText(const absl::Status& why) {
  return absl::StrCat(static_cast<int>(why.code()), " ", why.message().substr(0, kMaxErrorBytes));
}

absl::Status ErrorOf(absl::string_view metadata) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(metadata, absl::MaxSplits(' ', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code) || code == 0)
    code = static_cast<int>(absl::StatusCode::kInternal);
  return absl::Status(static_cast<absl::StatusCode>(code), parts.second);
}

}  // namespace

FoldTree::FoldTree(Client& client, const Membership& member, const FoldPlan& plan, Scope scope,
                   absl::Duration patience, absl::FunctionRef<bool()> look)
    : client_(client),
      member_(member),
      plan_(plan),
      scope_(std::move(scope)),
      until_(MonotonicNow() + patience * plan.ShareOf(member.rank())),
      look_(look),
      children_(plan.ChildrenOf(member.rank())) {}

FoldTree::~FoldTree() {
  for (const Future<Buffer>& future : asked_) future.Cancel();
  phalanx::internal::NameTable& names = phalanx::internal::Access::ConnectionOf(client_)->names();
  for (const ObjectId& id : named_) names.Forget(id);
}

ObjectId FoldTree::IdOf(int rank, uint64_t piece) {
  named_.push_back(client_.Id(scope_.name, absl::StrCat(scope_.number, "/", rank, "/", piece)));
  return named_.back();
}

absl::Status FoldTree::Climb(const Value& value) {
  const bool root = member_.rank() == 0;
  for (uint64_t piece = 0; piece < plan_.pieces(); ++piece) {
    const absl::Status status = FoldPiece(piece, value);
    if (status.ok()) {
      const absl::string_view bytes = value.get(piece);
      if (!root) Put(piece, bytes);
      continue;
    }
    if (!root) PutError(piece, status);
    EndPuts().IgnoreError();
    return status;
  }
  return EndPuts();
}

void FoldTree::AskAhead() {
  GetOptions options;
  options.timeout = std::max(until_ - MonotonicNow(), absl::ZeroDuration());
  const uint64_t children = children_.size();
  for (; asked_.size() < kAskedPieces && next_asked_ < children * plan_.pieces(); ++next_asked_) {
    const int child = children_[next_asked_ % children];
    asked_.push_back(client_.Get(IdOf(child, next_asked_ / children), options));
  }
}

absl::Status FoldTree::FoldPiece(uint64_t piece, const Value& value) {
  for (const int child : children_) PHALANX_RETURN_IF_ERROR(Take(child, piece, value));
  return absl::OkStatus();
}

// The bytes are not kept here longer than it takes to fold them.
absl::Status FoldTree::Take(int child, uint64_t piece, const Value& value) {
  AskAhead();
  const Future<Buffer> future = std::move(asked_.front());
  asked_.pop_front();
  while (look_() && !future.ready()) future.Wait(kLookEvery).IgnoreError();
  const absl::StatusOr<Buffer> bytes = future.Wait();
  if (absl::IsDeadlineExceeded(bytes.status())) return WaitsFor(child);
  if (!bytes.ok()) return Named(bytes.status());
  if (!bytes->metadata().empty()) return ErrorOf(bytes->metadata());
  return Named(value.add(piece, bytes->view()));
}

absl::Status FoldTree::Named(const absl::Status& why) const {
  if (why.ok()) return why;
  return absl::Status(why.code(), absl::StrCat("rank ", member_.rank(), ": ", why.message()));
}

absl::Status FoldTree::WaitsFor(int rank) const {
  std::string task;
  const std::vector<Member> members = member_.Members();
  const auto at = static_cast<size_t>(rank);
  if (at < members.size()) {
    task = absl::StrCat(" (", members[at].task, members[at].live() ? "" : ", which has ended", ")");
  }
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", member_.rank(), " is waiting for the fold of rank ", rank, task));
}

void FoldTree::Put(uint64_t piece, absl::string_view bytes) {
  PutOptions options;
  options.scope = scope_;
  options.timeout = std::max(until_ - MonotonicNow(), absl::ZeroDuration());
  puts_.push_back(client_.Put(IdOf(member_.rank(), piece), bytes, std::move(options)));
}

void FoldTree::PutError(uint64_t piece, const absl::Status& why) {
  PutOptions options;
  options.scope = scope_;
  options.metadata = ErrorText(why);
  options.timeout = kErrorPatience;
  client_.Put(IdOf(member_.rank(), piece), "error", std::move(options)).Wait().IgnoreError();
}

// With other sizes, too, what an earlier life has put stays.
absl::Status FoldTree::EndPuts() {
  for (size_t piece = 0; piece < puts_.size(); ++piece) {
    const absl::Status status = puts_[piece].Wait().status();
    if (status.ok() || absl::IsAlreadyExists(status)) continue;
    PutError(piece, Named(status));
    return Named(status);
  }
  return absl::OkStatus();
}

}  // namespace phalanx::spmd::internal
