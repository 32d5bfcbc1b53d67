// Buffers: dropping them from finalisers, and private copies of their pages.

#include <sys/mman.h>

#include <atomic>

#include "src/runtime/c/handles.h"
#include "src/runtime/client/buffer_state.h"

namespace {

// Buffers that a finaliser of another language has dropped. A finaliser may run anywhere, so it
// waits for nothing: it puts the buffer into this list, and gives back what the list holds unless
// somebody else is doing so, who then comes to this one as well.
std::atomic<phx_buffer*> dropped{nullptr};
std::atomic_flag collecting;

void Collect() {
  while (dropped.load() != nullptr) {
    if (collecting.test_and_set()) return;
    phx_buffer* next = dropped.exchange(nullptr);
    while (next != nullptr) {
      phx_buffer* const buffer = next;
      next = buffer->next;
      delete buffer;
    }
    collecting.clear();
  }
}

}  // namespace

void phx_buffer_free(phx_buffer* buffer) {
  if (buffer == nullptr) return;
  buffer->next = dropped.load();
  while (!dropped.compare_exchange_weak(buffer->next, buffer)) {
  }
  Collect();
}

char* phx_private_pages(const phx_buffer* buffer) {
  return phalanx::internal::Access::PrivatePagesOf(buffer->buffer);
}

void phx_private_free(char* pages, size_t size) {
  if (pages != nullptr) munmap(pages, size);
}
