#include "src/collectives/reducer/open_reductions.h"

#include "src/common/ids/open_hold.h"
#include "src/common/status_macros.h"

namespace phalanx::collectives {

using object_store::ClientId;

absl::Status OpenReductions::Begin(ClientId client, const ObjectId& target) {
  const auto known = clients_.find(client);
  const bool held = known != clients_.end() && known->second.contains(target);
  // Held once, so that one Unhold lets go.
  if (!held) {
    const ObjectId id = OpenHoldOf(target, num_shards_);
    PHALANX_RETURN_IF_ERROR(store_.Hold(client, {&id, 1}));
  }
  ++clients_[client][target].calls;
  return absl::OkStatus();
}

void OpenReductions::Ended(ClientId client, const ObjectId& target, bool holds) {
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return;
  const auto it = of_client->second.find(target);
  if (it == of_client->second.end() || it->second.calls == 0) return;
  --it->second.calls;
  it->second.holds = it->second.holds || holds;
  LetGoIfDone(client, of_client->second, it);
}

void OpenReductions::Over(const ObjectId& target) {
  for (auto& [client, interests] : clients_) {
    const auto it = interests.find(target);
    if (it == interests.end()) continue;
    it->second.holds = false;
    LetGoIfDone(client, interests, it);
  }
  std::erase_if(clients_, [](const auto& client) { return client.second.empty(); });
}

void OpenReductions::LetGoIfDone(ClientId client, Interests& of_client, Interests::iterator it) {
  if (it->second.calls > 0 || it->second.holds) return;
  const ObjectId id = OpenHoldOf(it->first, num_shards_);
  store_.Unhold(client, {&id, 1});
  of_client.erase(it);
}

}  // namespace phalanx::collectives
