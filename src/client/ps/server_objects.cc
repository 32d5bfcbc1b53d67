#include "src/client/ps/server_objects.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/connection/connection.h"
#include "src/client/reduce_call.h"
#include "src/common/time/clock.h"
#include "src/ps/rows/ring_sums.h"

namespace phalanx::ps::internal {
namespace {

// For the node's answer to a request for memory, which it gives at once if it has some.
constexpr absl::Duration kAnswerPatience = absl::Milliseconds(10);
constexpr uint64_t kSlowBytesPerSecond = 1'000'000;
constexpr int kMostDoublings = 10;
// Of a version, at a time.
constexpr size_t kWrittenBytes = 1 << 20;

// An error of the store names the object that is to blame, if it is one of these.
std::string NamedIn(const absl::Status& error, const std::vector<std::string>& handles) {
  for (const std::string& handle : handles) {
    if (absl::StrContains(error.message(), IdOfHandle(handle).hex())) return handle;
  }
  return "";
}

}  // namespace

absl::Duration SumPatience(uint64_t bytes, int expired) {
  const absl::Duration once = absl::Minutes(1) + absl::Seconds(bytes / kSlowBytesPerSecond);
  return once * (1 << std::min(expired, kMostDoublings));
}

ObjectId IdOfHandle(absl::string_view handle) { return ObjectId::FromName("phalanx.ps", handle); }

ServerObjects::ServerObjects(std::shared_ptr<Client> client)
    : client_(std::move(client)), prefix_(ObjectId::Random().hex()) {}

uint64_t ServerObjects::waiting() const {
  uint64_t bytes = 0;
  for (const auto& [handle, version] : versions_) bytes += version.waits() ? version.size : 0;
  return bytes;
}

// Mostly the node has memory, and no copy is needed. While another version waits for some it has
// none, and the thread of Run is not held up for each.
void ServerObjects::Publish(const ServerCore::Publish& publish) {
  Version& version = versions_[publish.handle];
  version.table = publish.table;
  const absl::string_view bytes = publish.bytes();
  const uint64_t before = waiting();
  version.size = bytes.size();
  if (before > 0 && before + bytes.size() > kMostWaitingBytes) {
    version.refused = absl::ResourceExhaustedError(
        absl::StrCat("other states, of ", before, " bytes, wait for memory of the node"));
    return;
  }
  PutOptions options;
  options.owned = true;
  options.timeout = kRoomPatience;
  const auto connection = phalanx::internal::Access::ConnectionOf(*client_);
  version.room = phalanx::internal::WriterState::Begin(connection, IdOfHandle(publish.handle),
                                                       bytes.size(), options);
  if (before == 0) {
    connection->WaitInsideCall([&] { return version.room->done(); },
                               MonotonicNow() + kAnswerPatience);
  }
}

// Memory that is not there yet is not waited for: the rows may change before it is.
void ServerObjects::Fill(const ServerCore::Publish& publish) {
  const auto found = versions_.find(publish.handle);
  if (found == versions_.end() || found->second.room == nullptr) return;
  Version& version = found->second;
  if (version.room->done()) return Write(version, publish.bytes());
  version.bytes = std::string(publish.bytes());
}

void ServerObjects::Write(Version& version, absl::string_view bytes) {
  auto writer = phalanx::internal::WriterState::Take(*version.room);
  version.room = nullptr;
  if (writer.ok()) {
    // What is written is on its way while the rest is.
    for (size_t at = 0; at < bytes.size(); at += kWrittenBytes) {
      const absl::string_view some = bytes.substr(at, kWrittenBytes);
      std::copy(some.begin(), some.end(), (*writer)->data + at);
      if (at + some.size() < bytes.size()) (*writer)->Publish(at + some.size()).IgnoreError();
    }
    version.put = (*writer)->Seal();
  } else {
    version.refused = writer.status();
  }
  version.bytes = std::string();
}

bool ServerObjects::Version::ready() const {
  if (stored) return false;
  if (room != nullptr) return room->done();
  return !refused.ok() || put.ready();
}

void ServerObjects::Unpublish(const std::string& handle) {
  const auto found = versions_.find(handle);
  if (found == versions_.end()) return;
  Drop(handle, found->second);
  versions_.erase(found);
}

// A Put that is under way holds the object, too. Memory that is asked for is given back, when it is
// there.
void ServerObjects::Drop(const std::string& handle, Version& version) {
  if (version.room != nullptr) {
    version.room->connection().Cancel(*version.room);
    phalanx::internal::WriterState::Take(*version.room).IgnoreError();
    return;
  }
  if (!version.refused.ok()) return;
  const ObjectId id = IdOfHandle(handle);
  client_->Release({&id, 1});
}

// The object is there, and this client has held it since the reduction began.
void ServerObjects::Keep(const Sum& sum, bool needed) {
  if (needed) {
    Version& version = versions_[sum.version];
    version.table = sum.table;
    version.stored = true;
    return;
  }
  const ObjectId id = IdOfHandle(sum.version);
  client_->Release({&id, 1});
}

// A Get that came before, or comes later, ends with NotFound. Delete ends a reduction that still
// makes the object, and frees the object if it is there; what was never put, and nothing makes any
// more, it does not know.
void ServerObjects::Void(const std::string& handle) {
  const ObjectId id = IdOfHandle(handle);
  client_->Delete(id);
  client_->Fail(id, absl::NotFoundError("its ring was not made"));
}

void ServerObjects::Reduce(const ServerCore::Reduce& reduce, DType dtype) {
  if (reduce.only) CancelOthers(reduce.table, reduce.attempt);
  UnderWay sum{.table = reduce.table,
               .attempt = reduce.attempt,
               .target = {},
               .handles = reduce.handles,
               .sources = {},
               .size = reduce.bytes};
  if (reduce.ring()) sum.handles.insert(sum.handles.begin(), reduce.base);
  sum.sources.reserve(sum.handles.size());
  for (const std::string& handle : sum.handles) sum.sources.push_back(IdOfHandle(handle));
  sum.options.dtype = dtype;
  sum.options.order = ReduceOptions::Order::kFixed;
  sum.options.owned = true;
  sum.options.timeout = SumPatience(reduce.bytes, expired_[reduce.table]);
  const auto connection = phalanx::internal::Access::ConnectionOf(*client_);
  if (reduce.ring()) {
    sum.version = reduce.target;
    sum.target = IdOfHandle(reduce.target);
    sum.bytes =
        phalanx::internal::RingAndGet(connection, "Reduce", sum.target, sum.sources, sum.options);
  } else if (sum.sources.size() == 1) {
    sum.bytes = client_->Get(sum.sources[0], GetOptions{.timeout = sum.options.timeout});
  } else {
    sum.target = IdOfHandle(absl::StrCat(prefix_, "/", reduce.table, "/sum/", reduce.attempt));
    sum.bytes = phalanx::internal::ReduceAndGet(connection, "Reduce", sum.target, sum.sources,
                                                sum.options, /*everybody=*/false);
  }
  sums_.push_back(std::move(sum));
}

// The node holds the sources for the call that has ended, and for these from now on.
void ServerObjects::BeginSlices(UnderWay& sum) {
  in_slices_.push_back({sum.table, sum.attempt});
  const auto connection = phalanx::internal::Access::ConnectionOf(*client_);
  for (const RingSlice& slice : RingSlices(sum.size, sum.sources.size())) {
    std::vector<ObjectId> sources;
    for (const size_t source : slice.sources) sources.push_back(sum.sources[source]);
    const ObjectId target =
        IdOfHandle(absl::StrCat(prefix_, "/", sum.table, "/sum/", sum.attempt, "/", slice.begin));
    ReduceOptions options = sum.options;
    options.offset = slice.begin;
    options.length = slice.bytes;
    sum.slices.push_back(
        {target, phalanx::internal::ReduceAndGet(connection, "Reduce", target, sources, options,
                                                 /*everybody=*/false)});
  }
}

// All slices have the same sources: if one fails, so do the others, or they come.
bool ServerObjects::UnderWay::ready() const {
  if (slices.empty()) return bytes.ready();
  return std::all_of(slices.begin(), slices.end(),
                     [](const Slice& slice) { return slice.bytes.ready(); });
}

bool ServerObjects::ready() const {
  return std::any_of(sums_.begin(), sums_.end(), [](const UnderWay& sum) { return sum.ready(); }) ||
         std::any_of(versions_.begin(), versions_.end(),
                     [](const auto& version) { return version.second.ready(); });
}

// The first error counts. Slices lie in the order of the part.
ServerObjects::Sum ServerObjects::ResultOf(const UnderWay& sum) {
  Sum result{sum.table, sum.attempt, absl::UnknownError("")};
  if (sum.slices.empty()) {
    result.bytes = sum.bytes.Wait();
    if (result.bytes.ok()) result.version = sum.version;
  }
  if (!sum.slices.empty()) result.slices.reserve(sum.size);
  for (const Slice& slice : sum.slices) {
    result.bytes = slice.bytes.Wait();
    if (!result.bytes.ok()) break;
    absl::StrAppend(&result.slices, result.bytes->view());
  }
  return result;
}

std::vector<ServerObjects::Sum> ServerObjects::TakeSums() {
  std::vector<Sum> taken;
  for (size_t i = 0; i < sums_.size();) {
    if (!sums_[i].ready()) {
      ++i;
      continue;
    }
    taken.push_back(ResultOf(sums_[i]));
    Sum& result = taken.back();
    const absl::Status why = result.bytes.status();
    // Sources of another size fit in no order, and what is too slow in one is so in the others.
    const bool in_slices = !why.ok() && !sums_[i].version.empty() && sums_[i].slices.empty() &&
                           !absl::IsInvalidArgument(why) && !absl::IsDeadlineExceeded(why);
    if (in_slices) {
      taken.pop_back();
      BeginSlices(sums_[i++]);
      continue;
    }
    const UnderWay sum = std::move(sums_[i]);
    sums_.erase(sums_.begin() + static_cast<std::ptrdiff_t>(i));
    const bool slow = absl::IsDeadlineExceeded(why);
    expired_[sum.table] = slow ? expired_[sum.table] + 1 : 0;
    if (!why.ok()) {
      // The others of its slices can be there, or not.
      if (!sum.slices.empty()) Cancel(sum);
      result.handle = NamedIn(why, sum.handles);
      continue;
    }
    // The bytes stay as long as the buffer.
    if (sum.version.empty() && !sum.target.nil()) client_->Release({&sum.target, 1});
    for (const Slice& slice : sum.slices) client_->Release({&slice.target, 1});
    CancelOthers(sum.table, sum.attempt);
    i = 0;
  }
  return taken;
}

// The result is nothing that a client waits for: a reduction goes on without its callers, and would
// wait for a push that never comes. One that has its result already holds it.
void ServerObjects::Cancel(const UnderWay& sum) {
  const auto give_up = [this](const ObjectId& target) {
    client_->Release({&target, 1});
    client_->Delete(target);
  };
  sum.bytes.Cancel();
  if (!sum.target.nil()) give_up(sum.target);
  for (const Slice& slice : sum.slices) {
    slice.bytes.Cancel();
    give_up(slice.target);
  }
}

void ServerObjects::CancelOthers(uint32_t table, uint64_t attempt) {
  std::erase_if(sums_, [&](const UnderWay& sum) {
    if (sum.table != table || sum.attempt == attempt) return false;
    Cancel(sum);
    return true;
  });
}

std::vector<ServerObjects::Unpublished> ServerObjects::TakeUnpublished() {
  std::vector<Unpublished> taken;
  for (auto at = versions_.begin(); at != versions_.end();) {
    Version& version = at->second;
    if (!version.ready()) {
      ++at;
      continue;
    }
    if (version.room != nullptr) {
      const std::string bytes = std::move(version.bytes);
      Write(version, bytes);
      if (!version.ready()) continue;
    }
    const absl::Status status =
        version.refused.ok() ? version.put.Wait().status() : version.refused;
    version.stored = true;
    if (status.ok()) {
      ++at;
      continue;
    }
    taken.push_back({version.table, at->first, status});
    at = versions_.erase(at);
  }
  return taken;
}

void ServerObjects::End() {
  for (const UnderWay& sum : std::exchange(sums_, {})) Cancel(sum);
  for (auto& [handle, version] : std::exchange(versions_, {})) Drop(handle, version);
}

}  // namespace phalanx::ps::internal
