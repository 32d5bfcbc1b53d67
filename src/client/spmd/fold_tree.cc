#include "src/client/spmd/fold_tree.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

// An object with metadata is an error: its code and its text.
constexpr size_t kMaxErrorBytes = 1000;
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
  for (const Row& row : asked_) {
    for (const Future<Buffer>& future : row) future.Cancel();
  }
}

ObjectId FoldTree::IdOf(int rank, uint64_t piece) const {
  return client_.Id(scope_.name, absl::StrCat(scope_.number, "/", rank, "/", piece));
}

absl::Status FoldTree::Climb(const Value& value) {
  AskChildren();
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

// All at once, so that the bytes of one piece come while another one is folded.
void FoldTree::AskChildren() {
  GetOptions options;
  options.timeout = until_ - MonotonicNow();
  for (const int child : children_) {
    Row& row = asked_.emplace_back();
    for (uint64_t piece = 0; piece < plan_.pieces(); ++piece) {
      row.push_back(client_.Get(IdOf(child, piece), options));
    }
  }
}

absl::Status FoldTree::FoldPiece(uint64_t piece, const Value& value) {
  for (size_t i = 0; i < children_.size(); ++i) {
    // The bytes are not kept here longer than it takes to fold them.
    Future<Buffer> future = std::exchange(asked_[i][piece], Future<Buffer>());
    PHALANX_RETURN_IF_ERROR(Take(children_[i], piece, std::move(future), value));
  }
  return absl::OkStatus();
}

absl::Status FoldTree::Take(int child, uint64_t piece, Future<Buffer> future, const Value& value) {
  while (look_() && !future.ready()) future.Wait(kLookEvery).IgnoreError();
  const absl::StatusOr<Buffer> bytes = future.Wait();
  if (absl::IsDeadlineExceeded(bytes.status())) return WaitsFor(child);
  if (!bytes.ok()) return bytes.status();
  if (!bytes->metadata().empty()) return ErrorOf(bytes->metadata());
  return value.add(piece, bytes->view());
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
    PutError(piece, status);
    return status;
  }
  return absl::OkStatus();
}

}  // namespace phalanx::spmd::internal
