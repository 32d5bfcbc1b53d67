// Waiting for calls, and their results.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "src/client/c/completion_queue.h"
#include "src/client/c/handles.h"

using phalanx::Buffer;
using phalanx::Future;
using phalanx::ObjectId;
using phalanx::c::Creating;
using phalanx::c::DurationOf;
using phalanx::c::OutcomeOf;
using phalanx::c::Report;
using phalanx::c::StateOf;

namespace {

// Returns the result of a call that has succeeded, if it has the requested type; otherwise null,
// and reports the error.
template <typename T>
const T* ResultOf(const phx_call* call) {
  const auto* future = std::get_if<Future<T>>(&call->call);
  if (future == nullptr) {
    Report(absl::InvalidArgumentError("this call has no result of that kind"));
    return nullptr;
  }
  if (!StateOf(call->call)->done()) {
    Report(absl::FailedPreconditionError("the call has not ended"));
    return nullptr;
  }
  const auto& result = *phalanx::internal::Access::StateOf(*future)->result;
  if (result.ok()) return &*result;
  Report(result.status());
  return nullptr;
}

// Returns the buffers of a Get of one or of many objects.
absl::Span<const Buffer> BuffersOf(const phx_call* call) {
  if (std::holds_alternative<Future<Buffer>>(call->call)) {
    const Buffer* buffer = ResultOf<Buffer>(call);
    return buffer == nullptr ? absl::Span<const Buffer>() : absl::MakeConstSpan(buffer, 1);
  }
  const auto* buffers = ResultOf<std::vector<Buffer>>(call);
  return buffers == nullptr ? absl::Span<const Buffer>() : absl::MakeConstSpan(*buffers);
}

}  // namespace

int phx_wait(phx_call* call, int64_t timeout) {
  phalanx::internal::Call* state = StateOf(call->call);
  if (!state->done()) {
    // In a child of fork no thread would ever receive the answer.
    const absl::Status process = state->connection().CheckProcess();
    if (!process.ok()) return Report(process);
    const phalanx::Instant until = phalanx::MonotonicNow() + DurationOf(timeout);
    if (!state->connection().WaitFor(*state, until)) return -1;
  }
  return Report(OutcomeOf(call->call));
}

size_t phx_wait_some(phx_call* const* calls, size_t n, size_t count, int64_t timeout) {
  std::vector<phalanx::internal::Call*> pending;
  for (size_t i = 0; i < n; ++i) {
    phalanx::internal::Call* state = StateOf(calls[i]->call);
    if (!state->done()) pending.push_back(state);
  }
  const auto ended = [n, &pending] {
    std::erase_if(pending, [](const auto* state) { return state->done(); });
    return n - pending.size();
  };
  // The common case returns without the lock.
  if (pending.empty() || ended() >= count) return ended();
  phalanx::internal::Connection& connection = pending.front()->connection();
  if (!connection.CheckProcess().ok()) return ended();
  // The calls can be of several kinds, so this waits for a condition instead of one future.
  connection.WaitInsideCall([&ended, count] { return ended() >= count; },
                            phalanx::MonotonicNow() + DurationOf(timeout));
  return ended();
}

// `done` is atomic, so bindings can poll without a lock.
int phx_call_ended(const phx_call* call) { return StateOf(call->call)->done() ? 1 : 0; }

void phx_cancel(phx_call* call) {
  phalanx::internal::Call* state = StateOf(call->call);
  state->connection().Cancel(*state);
}

void phx_call_free(phx_call* call) {
  if (call == nullptr) return;
  // No caller can write the object after this, so the call is cancelled, or its writer is taken and
  // dropped.
  const auto* creating = std::get_if<Creating>(&call->call);
  if (creating != nullptr && !(*creating)->connection().forked()) {
    (*creating)->connection().Cancel(**creating);
    phalanx::internal::WriterState::Take(**creating).IgnoreError();
  }
  delete call;
}

void phx_call_notify(phx_call* call, phx_queue* queue, uint64_t tag) {
  // Holds the mailbox and not the queue: the call can end after the queue was freed.
  const auto add_tag = [mailbox = queue->mailbox, tag](const auto&) { mailbox->Add(tag); };
  std::visit([&add_tag](const auto& future) { phalanx::c::NotifyWhenEnded(future, add_tag); },
             call->call);
}

size_t phx_result_count(const phx_call* call) {
  if (std::holds_alternative<Future<std::vector<ObjectId>>>(call->call)) {
    const auto* ids = ResultOf<std::vector<ObjectId>>(call);
    return ids == nullptr ? 0 : ids->size();
  }
  return BuffersOf(call).size();
}

int phx_result_views(const phx_call* call, size_t begin, size_t end, phx_view* views) {
  const absl::Span<const Buffer> buffers = BuffersOf(call);
  // A range, so that a binding can fetch the views of a large Get in batches.
  if (begin > end || end > buffers.size()) {
    return Report(absl::OutOfRangeError("the call has no such buffers"));
  }
  // Each view has its own handle: the caller can drop the call and keep some of the buffers.
  for (size_t i = begin; i < end; ++i) {
    const Buffer& buffer = buffers[i];
    *views++ = {
        new phx_buffer{buffer},   buffer.data(),       buffer.size(), buffer.metadata().data(),
        buffer.metadata().size(), buffer.object_size()};
  }
  return 0;
}

int64_t phx_result_copies(const phx_call* call, size_t begin, size_t end, uint64_t most,
                          char* bytes, size_t room, uint64_t* sizes) {
  const absl::Span<const Buffer> buffers = BuffersOf(call);
  if (begin > end || end > buffers.size()) {
    Report(absl::OutOfRangeError("the call has no such buffers"));
    return -1;
  }
  size_t i = begin;
  for (; i < end; ++i) {
    const absl::string_view metadata = buffers[i].metadata();
    const absl::string_view data = buffers[i].view();
    if (data.size() > most || metadata.size() > room || data.size() > room - metadata.size()) break;
    bytes = std::copy(metadata.begin(), metadata.end(), bytes);
    bytes = std::copy(data.begin(), data.end(), bytes);
    room -= metadata.size() + data.size();
    *sizes++ = metadata.size();
    *sizes++ = data.size();
  }
  return static_cast<int64_t>(i - begin);
}

int phx_result_ids(const phx_call* call, char* ids) {
  const auto* result = ResultOf<std::vector<ObjectId>>(call);
  if (result == nullptr) return phx_error_code();
  for (const ObjectId& id : *result) {
    std::memcpy(ids, id.binary().data(), ObjectId::kSize);
    ids += ObjectId::kSize;
  }
  return 0;
}

int phx_result_status(const phx_call* call, phx_object_status* status) {
  const auto* result = ResultOf<phalanx::ObjectStatus>(call);
  if (result == nullptr) return phx_error_code();
  status->known = result->known;
  status->deleted = result->deleted;
  status->complete = result->complete;
  status->local = result->local;
  status->size = result->size;
  status->complete_copies = result->complete_copies;
  status->partial_copies = result->partial_copies;
  status->waiting = result->waiting;
  status->conflicts = result->conflicts;
  status->owned = result->owned;
  status->holders = result->holders;
  status->sticky = result->sticky;
  status->copies_wanted = result->copies_wanted;
  status->copies_there = result->copies_there;
  const bool endless = result->ttl == absl::InfiniteDuration();
  status->ttl = endless ? -1 : absl::ToInt64Nanoseconds(result->ttl);
  status->metadata_size = std::min(result->metadata.size(), sizeof(status->metadata));
  std::memcpy(status->metadata, result->metadata.data(), status->metadata_size);
  status->name_size = std::min(result->name.size(), sizeof(status->name));
  std::memcpy(status->name, result->name.data(), status->name_size);
  status->name_space_size = std::min(result->name_space.size(), sizeof(status->name_space));
  std::memcpy(status->name_space, result->name_space.data(), status->name_space_size);
  return 0;
}

int phx_result_progress(const phx_call* call, phx_broadcast_progress* progress) {
  const auto* result = ResultOf<phalanx::BroadcastProgress>(call);
  if (result == nullptr) return phx_error_code();
  *progress = {result->nodes, result->complete,    result->without_room,
               result->bytes, result->total_bytes, result->sticky ? 1 : 0};
  return 0;
}

int phx_result_group_progress(const phx_call* call, phx_group_progress* progress) {
  const auto* result = ResultOf<phalanx::GroupProgress>(call);
  if (result == nullptr) return phx_error_code();
  *progress = {result->ended, {result->keep.boot, result->keep.released, result->keep.mark}};
  return 0;
}

int phx_result_reply(const phx_call* call, int32_t* head, const void** body, uint64_t* size) {
  const auto* result = ResultOf<phalanx::ps::Reply>(call);
  if (result == nullptr) return phx_error_code();
  *head = result->head;
  *body = result->body.data();
  *size = result->body.size();
  return 0;
}

int phx_ps_pulled(phx_call* call, uint32_t** lengths, size_t* n, void** values, uint64_t* bytes) {
  const auto* result = ResultOf<phalanx::ps::PulledRows>(call);
  if (result == nullptr) return phx_error_code();
  // No copy of the result is anywhere else: the rows are the caller's.
  *lengths = const_cast<uint32_t*>(result->lengths().data());
  *n = result->lengths().size();
  *values = const_cast<char*>(result->values<char>().data());
  *bytes = result->values<char>().size();
  return 0;
}

int phx_result_number(const phx_call* call, int64_t* number) {
  if (std::holds_alternative<Future<phalanx::PutResult>>(call->call)) {
    const auto* put = ResultOf<phalanx::PutResult>(call);
    if (put != nullptr) *number = put->already_existed ? 1 : 0;
    return put == nullptr ? phx_error_code() : 0;
  }
  if (std::holds_alternative<Future<bool>>(call->call)) {
    const bool* answer = ResultOf<bool>(call);
    if (answer != nullptr) *number = *answer ? 1 : 0;
    return answer == nullptr ? phx_error_code() : 0;
  }
  const int* answer = ResultOf<int>(call);
  if (answer != nullptr) *number = *answer;
  return answer == nullptr ? phx_error_code() : 0;
}

phx_writer* phx_result_writer(phx_call* call) {
  const auto* creating = std::get_if<Creating>(&call->call);
  if (creating == nullptr || !(*creating)->done()) {
    Report(absl::FailedPreconditionError("this call has no writer"));
    return nullptr;
  }
  auto writer = phalanx::internal::WriterState::Take(**creating);
  // The grant can be taken once, so a second call is an error.
  if (!writer.ok()) {
    Report(writer.status());
    return nullptr;
  }
  return new phx_writer{*std::move(writer)};
}
