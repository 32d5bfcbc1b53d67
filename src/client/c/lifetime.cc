// Holds, and references in transit.

#include <cstring>

#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::IdOf;
using phalanx::c::IdsOf;
using phalanx::c::Report;

int phx_hold(phx_client* client, const char* ids, size_t n) {
  return Report(client->client->Hold(IdsOf(ids, n)));
}

int phx_transit(phx_client* client, const char* id, char* token) {
  const auto made = client->client->Transit(IdOf(id));
  if (!made.ok()) return Report(made.status());
  // The header requires room for 24 bytes, the size of every token.
  std::memcpy(token, made->data(), made->size());
  return 0;
}

int phx_claim(phx_client* client, const char* id, const char* token, size_t token_size) {
  return Report(client->client->Hold(IdOf(id), absl::string_view(token, token_size)));
}

phx_call* phx_keep(phx_client* client, const char* id, int64_t timeout) {
  return Handle(client->client->Keep(IdOf(id), DurationOf(timeout)));
}
