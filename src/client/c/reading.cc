// Get, private pages, streams, and queries about objects.

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "phalanx/collectives.h"
#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::IdOf;
using phalanx::c::IdsOf;
using phalanx::c::NamesOf;
using phalanx::c::Report;

phx_call* phx_get(phx_client* client, const char* ids, size_t n, uint64_t offset, uint64_t length,
                  int fail_if_lost, int64_t timeout) {
  phalanx::GetOptions options;
  if (fail_if_lost != 0) options.on_lost = phalanx::GetOptions::OnLost::kFail;
  options.timeout = DurationOf(timeout);
  options.offset = offset;
  options.length = length;
  // One id stays a plain Get: it needs no window and no sorting.
  if (n == 1) return Handle(client->client->Get(IdOf(ids), options));
  return Handle(client->client->GetMany(IdsOf(ids, n), options));
}

phx_call* phx_all_gather(phx_client* client, const char* ids, size_t n, size_t index,
                         int64_t timeout) {
  phalanx::GetOptions options;
  options.timeout = DurationOf(timeout);
  return Handle(phalanx::AllGather(*client->client, IdsOf(ids, n), index, options));
}

int phx_stream_open(phx_client* client, const char* id, int64_t timeout, phx_stream** stream) {
  auto opened = client->client->GetStream(IdOf(id), DurationOf(timeout));
  if (!opened.ok()) return Report(opened.status());
  *stream = new phx_stream{*std::move(opened)};
  return 0;
}

int phx_stream_next(phx_stream* stream, size_t most, int64_t timeout, const char** data,
                    size_t* size) {
  const auto next = stream->stream.Next(most, DurationOf(timeout));
  if (!next.ok()) return Report(next.status());
  *data = next->data();
  *size = next->size();
  return 0;
}

uint64_t phx_stream_size(phx_stream* stream) { return stream->stream.object_size(); }

size_t phx_stream_metadata(phx_stream* stream, char* metadata) {
  const absl::string_view text = stream->stream.metadata();
  // memcpy must not get a null pointer, which an empty view has.
  if (!text.empty()) std::memcpy(metadata, text.data(), text.size());
  return text.size();
}

void phx_stream_free(phx_stream* stream) { delete stream; }

char* phx_private_pages(const phx_buffer* buffer) {
  return phalanx::internal::Access::PrivatePagesOf(buffer->buffer);
}

void phx_private_free(char* pages, size_t size) {
  // phx_private_pages returns null for small objects, so null is allowed.
  if (pages != nullptr) munmap(pages, size);
}

phx_call* phx_stat(phx_client* client, const char* id, int64_t timeout) {
  return Handle(client->client->Stat(IdOf(id), DurationOf(timeout)));
}

phx_call* phx_contains(phx_client* client, const char* id, int64_t timeout) {
  return Handle(client->client->Contains(IdOf(id), DurationOf(timeout)));
}

phx_call* phx_delete(phx_client* client, const char* id, int64_t timeout) {
  return Handle(client->client->Delete(IdOf(id), DurationOf(timeout)));
}

phx_call* phx_broadcast(phx_client* client, const char* id, const char* names, size_t n, int sticky,
                        int64_t timeout) {
  return Handle(
      client->client->Broadcast(IdOf(id), {NamesOf(names, n), sticky != 0, DurationOf(timeout)}));
}

phx_call* phx_replicate(phx_client* client, const char* id, int copies, int64_t timeout) {
  return Handle(client->client->Replicate(IdOf(id), copies, DurationOf(timeout)));
}

phx_call* phx_end_scope(phx_client* client, const char* name, uint64_t number, int64_t timeout) {
  return Handle(client->client->EndScope({name, number}, DurationOf(timeout)));
}

phx_call* phx_broadcast_stop(phx_client* client, const char* id, int64_t timeout) {
  return Handle(client->client->StopBroadcast(IdOf(id), DurationOf(timeout)));
}

phx_call* phx_broadcast_progress_of(phx_client* client, const char* id, const char* names, size_t n,
                                    int64_t timeout) {
  return Handle(client->client->ProgressOf(IdOf(id), NamesOf(names, n), DurationOf(timeout)));
}
