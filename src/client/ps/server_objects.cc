#include "src/client/ps/server_objects.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/reduce_call.h"

namespace phalanx::ps::internal {
namespace {

// Of one attempt. A push that was lost with its worker is awaited in the next one, too.
constexpr absl::Duration kSumPatience = absl::Minutes(1);
// For memory. All tables of the server wait meanwhile.
constexpr absl::Duration kPublishPatience = absl::Seconds(5);

}  // namespace

ObjectId IdOfHandle(absl::string_view handle) { return ObjectId::FromName("phalanx.ps", handle); }

ServerObjects::ServerObjects(std::shared_ptr<Client> client)
    : client_(std::move(client)), prefix_(ObjectId::Random().hex()) {}

void ServerObjects::Publish(const ServerCore::Publish& publish) {
  PutOptions options;
  options.owned = true;
  options.timeout = kPublishPatience;
  versions_[publish.handle] = {publish.table,
                               client_->Put(IdOfHandle(publish.handle), publish.bytes(), options)};
}

// A Put that is under way holds the object, too.
void ServerObjects::Unpublish(const std::string& handle) {
  if (versions_.erase(handle) == 0) return;
  const ObjectId id = IdOfHandle(handle);
  client_->Release({&id, 1});
}

void ServerObjects::Reduce(const ServerCore::Reduce& reduce, DType dtype) {
  if (reduce.only) CancelOthers(reduce.table, reduce.attempt);
  std::vector<ObjectId> sources;
  sources.reserve(reduce.handles.size());
  for (const std::string& handle : reduce.handles) sources.push_back(IdOfHandle(handle));
  UnderWay sum{reduce.table, reduce.attempt, ObjectId(), {}};
  if (sources.size() == 1) {
    sum.bytes = client_->Get(sources[0], GetOptions{.timeout = kSumPatience});
  } else {
    sum.target = IdOfHandle(absl::StrCat(prefix_, "/", reduce.table, "/sum/", reduce.attempt));
    ReduceOptions options;
    options.dtype = dtype;
    options.order = ReduceOptions::Order::kFixed;
    options.owned = true;
    options.timeout = kSumPatience;
    sum.bytes = phalanx::internal::ReduceAndGet(phalanx::internal::Access::ConnectionOf(*client_),
                                                "Reduce", sum.target, sources, options,
                                                /*everybody=*/false);
  }
  sums_.push_back(std::move(sum));
}

bool ServerObjects::ready() const {
  return std::any_of(sums_.begin(), sums_.end(),
                     [](const UnderWay& sum) { return sum.bytes.ready(); }) ||
         std::any_of(versions_.begin(), versions_.end(), [](const auto& version) {
           return !version.second.stored && version.second.put.ready();
         });
}

std::vector<ServerObjects::Sum> ServerObjects::TakeSums() {
  std::vector<Sum> taken;
  for (size_t i = 0; i < sums_.size();) {
    if (!sums_[i].bytes.ready()) {
      ++i;
      continue;
    }
    const UnderWay sum = std::move(sums_[i]);
    sums_.erase(sums_.begin() + static_cast<std::ptrdiff_t>(i));
    taken.push_back({sum.table, sum.attempt, sum.bytes.Wait()});
    if (!taken.back().bytes.ok()) continue;
    // The bytes stay as long as the buffer.
    if (!sum.target.nil()) client_->Release({&sum.target, 1});
    CancelOthers(sum.table, sum.attempt);
    i = 0;
  }
  return taken;
}

// The result is nothing that a client waits for: a reduction goes on without its callers, and would
// wait for a push that never comes.
void ServerObjects::Cancel(const UnderWay& sum) {
  sum.bytes.Cancel();
  if (!sum.target.nil()) client_->Delete(sum.target);
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
    if (version.stored || !version.put.ready()) {
      ++at;
      continue;
    }
    const absl::Status status = version.put.Wait().status();
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
  for (const auto& [handle, version] : std::exchange(versions_, {})) {
    const ObjectId id = IdOfHandle(handle);
    client_->Release({&id, 1});
  }
}

}  // namespace phalanx::ps::internal
