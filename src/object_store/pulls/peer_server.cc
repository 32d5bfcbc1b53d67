#include "src/object_store/pulls/peer_server.h"

#include <algorithm>
#include <utility>

namespace phalanx::object_store {

PeerServer::PeerServer(const StoreOptions& options, Executor& executor, Turns& turns,
                       RequestTable& requests, ObjectTable& table, const PullManager& pulls)
    : patience_(options.serve_patience),
      executor_(executor),
      turns_(turns),
      requests_(requests),
      table_(table),
      pulls_(pulls),
      pushes_(options.self, PushLimits(), table),
      waiting_(options.max_waiting_serves) {}

absl::StatusOr<net::ServeGrant> PeerServer::Serve(const net::ServeRequest& request) {
  absl::StatusOr<Copy*> copy = pushes_.Begin(request);
  if (!copy.ok()) return copy.status();
  net::ServeGrant grant;
  grant.from = (*copy)->buffer;
  // The grant can outlive the store: the guard then does nothing.
  grant.pin =
      std::shared_ptr<void>(static_cast<void*>(*copy), [end = turns_.Guarded([this](Copy* pushed) {
                              pushes_.End(pushed);
                            })](void* pushed) mutable { end(static_cast<Copy*>(pushed)); });
  return grant;
}

void PeerServer::Serve(const net::ServeRequest& request, net::DataPlane::ServeReply reply) {
  const PullTarget* target = pulls_.Target(request.object);
  // Another generation that is being fetched will never answer this request, so it is refused at
  // once.
  const bool about_to_begin = pulls_.Wants(request.object) &&
                              table_.Find(request.object, request.generation) == nullptr &&
                              (target == nullptr || target->generation == request.generation);
  if (!about_to_begin || waiting_.full()) {
    reply(Serve(request));
    return;
  }
  const uint64_t serial = requests_.NewNumber();
  // No longer than the receiver waits: a late grant would pin the copy for a peer that has gone
  // elsewhere.
  const absl::Duration patience = std::min(patience_, request.patience);
  waiting_.Add(serial, request, std::move(reply));
  executor_.RunAt(executor_.Now() + patience,
                  turns_.Guarded([this, id = request.object, serial] { Answer(id, serial); }));
}

void PeerServer::Answer(const ObjectId& id, uint64_t expired) {
  const auto is_here = [this](const net::ServeRequest& request) {
    return table_.Find(request.object, request.generation) != nullptr;
  };
  for (ServeWaitlist::Waiting& waiting : waiting_.Take(id, expired, is_here)) {
    waiting.reply(Serve(waiting.request));
  }
}

}  // namespace phalanx::object_store
