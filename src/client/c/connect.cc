// Connecting, driving and names.

#include <cstring>
#include <utility>

#include "src/client/c/handles.h"
#include "src/common/release.h"

using phalanx::c::DurationOf;
using phalanx::c::Report;
using phalanx::internal::Connection;

namespace {

std::string TextOf(const char* text) { return text == nullptr ? std::string() : text; }

}  // namespace

const char* phx_version(void) { return phalanx::kRelease; }

phx_client* phx_connect(const phx_connect_options* options) {
  phalanx::ClientOptions to;
  if (options != nullptr) {
    to.address = TextOf(options->address);
    to.embedded_executable = TextOf(options->executable);
    to.connect_timeout = DurationOf(options->connect_timeout);
    to.embedded_capacity = options->embedded_capacity;
  }
  // Names are hashed by phx_id_from_name, so the client needs no namespace.
  auto client = phalanx::Client::Connect(std::move(to));
  if (!client.ok()) {
    Report(client.status());
    return nullptr;
  }
  return new phx_client{*std::move(client)};
}

void phx_close(phx_client* client) { client->client->Close(); }
void phx_client_free(phx_client* client) {
  if (client == nullptr) return;
  // References keep the client object alive, but they must not keep the connection open.
  client->client->Close();
  delete client;
}

// The strings live as long as the client, so no copy has to be freed.
const char* phx_client_address(const phx_client* client) {
  return client->client->address().c_str();
}
const char* phx_client_node(const phx_client* client) {
  return client->client->node_name().c_str();
}
const char* phx_client_directory(const phx_client* client) {
  return client->client->directory().c_str();
}

int phx_client_forked(const phx_client* client) {
  return phalanx::internal::Access::ConnectionOf(*client->client)->forked() ? 1 : 0;
}

int phx_client_fd(phx_client* client) { return client->client->fd(); }
void phx_poll(phx_client* client, int64_t timeout) { client->client->Poll(DurationOf(timeout)); }

void phx_batch_begin(phx_client* client) {
  Connection::Batch::Begin(*phalanx::internal::Access::ConnectionOf(*client->client));
}
void phx_batch_end(phx_client* client) {
  Connection::Batch::End(*phalanx::internal::Access::ConnectionOf(*client->client));
}

void phx_id_random(char* id) {
  const phalanx::ObjectId made = phalanx::ObjectId::Random();
  std::memcpy(id, made.binary().data(), phalanx::ObjectId::kSize);
}

void phx_client_id(phx_client* client, const char* name_space, size_t name_space_size,
                   const char* name, size_t name_size, char* id) {
  const phalanx::ObjectId made = client->client->Id(absl::string_view(name_space, name_space_size),
                                                    absl::string_view(name, name_size));
  if (id == nullptr) return;
  std::memcpy(id, made.binary().data(), phalanx::ObjectId::kSize);
}

void phx_id_from_name(const char* name_space, size_t name_space_size, const char* name,
                      size_t name_size, char* id) {
  const phalanx::ObjectId made = phalanx::ObjectId::FromName(
      absl::string_view(name_space, name_space_size), absl::string_view(name, name_size));
  std::memcpy(id, made.binary().data(), phalanx::ObjectId::kSize);
}
