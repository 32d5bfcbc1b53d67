// What finalisers of another language drop: buffers and holds.

#include <pthread.h>

#include <atomic>
#include <memory>
#include <utility>

#include "src/runtime/c/handles.h"

namespace {

// One hold to be released, or one buffer.
struct Dropped {
  std::unique_ptr<phx_buffer> buffer;
  std::shared_ptr<phalanx::Client> client;
  phalanx::ObjectId id;
  Dropped* next = nullptr;
};

// A finaliser may run anywhere, so it waits for nothing: it puts what it drops into this list, and
// gives back what the list holds unless somebody else is doing so, who then comes to this one as
// well.
std::atomic<Dropped*> dropped{nullptr};
std::atomic_flag collecting;
// In a child of fork nobody is collecting.
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { collecting.clear(); });

void Collect() {
  while (dropped.load() != nullptr) {
    if (collecting.test_and_set()) return;
    Dropped* next = dropped.exchange(nullptr);
    while (next != nullptr) {
      const std::unique_ptr<Dropped> one(next);
      next = one->next;
      if (one->client != nullptr) one->client->Release({&one->id, 1});
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

phx_ref* phx_ref_of(phx_client* client, const char* id) {
  return new phx_ref{client->client, phalanx::c::IdOf(id)};
}

void phx_ref_free(phx_ref* ref) {
  if (ref == nullptr) return;
  Drop(new Dropped{nullptr, std::move(ref->client), ref->id});
  delete ref;
}
