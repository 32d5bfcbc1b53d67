// Put, Create, and copying into memory.

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::IdOf;
using phalanx::c::Report;

namespace {

phalanx::PutOptions OptionsOf(const phx_put_options* given) {
  phalanx::PutOptions to;
  if (given == nullptr) return to;
  const phx_put_options& options = *given;
  if (options.metadata_size > 0) to.metadata.assign(options.metadata, options.metadata_size);
  // 0 slices means the default.
  to.slices = options.slices == 0 ? 1 : options.slices;
  to.wait_for_adoption = options.wait_for_adoption != 0;
  to.owned = options.owned != 0;
  to.refers_to = phalanx::c::IdsOf(options.refers_to, options.refers_to_count);
  to.timeout = DurationOf(options.timeout);
  if (options.ttl > 0) to.ttl = absl::Nanoseconds(options.ttl);
  to.copies = options.copies;
  to.wait_for_copies = options.wait_for_copies != 0;
  if (options.scope != nullptr) to.scope = phalanx::Scope{options.scope, options.scope_number};
  return to;
}

// One thread fills about half of a machine's memory bandwidth, so more than a few gain nothing.
constexpr size_t kBytesPerCopier = size_t{8} << 20;
constexpr size_t kMostCopiers = 4;

}  // namespace

phx_call* phx_put(phx_client* client, const char* id, const void* bytes, size_t size,
                  const phx_put_options* options) {
  return Handle(client->client->Put(
      IdOf(id), absl::string_view(static_cast<const char*>(bytes), size), OptionsOf(options)));
}

phx_call* phx_create(phx_client* client, const char* id, uint64_t size,
                     const phx_put_options* options) {
  // Begin does not block: the caller waits for the node's memory with phx_wait.
  return Handle(phalanx::internal::WriterState::Begin(
      phalanx::internal::Access::ConnectionOf(*client->client), IdOf(id), size,
      OptionsOf(options)));
}

char* phx_writer_data(phx_writer* writer) { return writer->state->data; }

int phx_writer_publish(phx_writer* writer, uint64_t n) { return Report(writer->state->Publish(n)); }

phx_call* phx_writer_seal(phx_writer* writer, int keep_memory) {
  return Handle(keep_memory != 0 ? writer->state->SealAndKeepMemory() : writer->state->Seal());
}

int phx_writer_abort(phx_writer* writer, int keep_memory) {
  if (keep_memory != 0) return Report(writer->state->AbortAndKeepMemory());
  writer->state->Abort();
  return 0;
}

void phx_writer_free(phx_writer* writer) { delete writer; }

void phx_copy(void* to, const void* from, size_t size) {
  // hardware_concurrency can return 0.
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t copiers = std::min({size / kBytesPerCopier, cores, kMostCopiers});
  if (copiers < 2) {
    if (size > 0) std::memcpy(to, from, size);
    return;
  }
  // Whole pages, so that two threads do not fault the same page.
  const size_t share = size / copiers / 4096 * 4096;
  const auto copy = [to, from](size_t begin, size_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                end - begin);
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < copiers; ++i) {
    others.emplace_back(copy, i * share, i + 1 == copiers ? size : (i + 1) * share);
  }
  copy(0, share);
}
