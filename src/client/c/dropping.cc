// Drops buffers, holds and calls from finalisers of another language.

#include <pthread.h>

#include <atomic>
#include <memory>
#include <utility>
#include <variant>

#include "src/client/c/handles.h"

namespace {

// One hold, one buffer, or one call to drop.
struct Dropped {
  std::unique_ptr<phx_buffer> buffer;
  std::shared_ptr<phalanx::Client> client;
  phalanx::ObjectId id;
  phx_call* call = nullptr;
  Dropped* next = nullptr;
};

void Forget(phx_call* call) {
  phalanx::internal::Call* state = phalanx::c::StateOf(call->call);
  phalanx::internal::Connection& connection = state->connection();
  connection.Cancel(*state);
  // A Create's hold belongs to its writer. A failed call has dropped its hold already.
  const bool holds = state->done() && state->holds() &&
                     !std::holds_alternative<phalanx::c::Creating>(call->call) &&
                     phalanx::c::OutcomeOf(call->call).ok();
  // A connection that has ended holds nothing.
  if (holds) connection.Post(phalanx::internal::local::Unhold{{state->id()}}).IgnoreError();
  phx_call_free(call);
}

// A finaliser can run at any point, so it must not block. It pushes its item onto this list, and
// then drops all items of the list, unless another thread is doing so; that thread then drops this
// item as well.
std::atomic<Dropped*> dropped{nullptr};
std::atomic_flag collecting;
// In a child of fork the collecting thread does not exist.
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { collecting.clear(); });

void Collect() {
  // Read again after each round: an item that was pushed in the meantime has no other thread to
  // drop it.
  while (dropped.load() != nullptr) {
    if (collecting.test_and_set()) return;
    Dropped* next = dropped.exchange(nullptr);
    while (next != nullptr) {
      // The destructor frees the buffer.
      const std::unique_ptr<Dropped> one(next);
      next = one->next;
      if (one->client != nullptr) one->client->Release({&one->id, 1});
      if (one->call != nullptr) Forget(one->call);
    }
    collecting.clear();
  }
}

void Drop(Dropped* one) {
  one->next = dropped.load();
  while (!dropped.compare_exchange_weak(one->next, one)) {
  }
  Collect();
}

}  // namespace

void phx_buffer_free(phx_buffer* buffer) {
  if (buffer == nullptr) return;
  Drop(new Dropped{std::unique_ptr<phx_buffer>(buffer), nullptr, {}});
}

void phx_call_forget(phx_call* call) {
  if (call == nullptr) return;
  Drop(new Dropped{nullptr, nullptr, {}, call});
}

phx_ref* phx_ref_of(phx_client* client, const char* id) {
  return new phx_ref{client->client, phalanx::c::IdOf(id)};
}

void phx_ref_free(phx_ref* ref) {
  if (ref == nullptr) return;
  Drop(new Dropped{nullptr, std::move(ref->client), ref->id});
  delete ref;
}
