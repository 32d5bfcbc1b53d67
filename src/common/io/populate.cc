#include "src/common/io/populate.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/common/threads/thread.h"

// The C library's headers define it only from release 2.35 on.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace phalanx {
namespace {

// Starting a thread takes about as long as populating a few dozen pages, so each thread needs many
// more.
constexpr uint64_t kBytesPerThread = uint64_t{16} << 20;
constexpr uint64_t kMaxThreads = 4;

// The result is ignored: the kernel allocates every page that is still missing when it is written.
void PopulateAlone(char* begin, uint64_t bytes) { madvise(begin, bytes, MADV_POPULATE_WRITE); }

// Populates on a new thread. Blocks every signal while the thread starts: a thread inherits the
// mask, so the kernel delivers no signal of the process to it.
absl::StatusOr<std::thread> PopulateBeside(char* begin, uint64_t bytes) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  absl::StatusOr<std::thread> thread =
      StartThread("populate", [begin, bytes] { PopulateAlone(begin, bytes); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

bool CanPopulate() {
  // With an empty range the kernel only checks whether it knows the advice.
  static const bool can = madvise(nullptr, 0, MADV_POPULATE_WRITE) == 0;
  return can;
}

void Populate(char* begin, uint64_t bytes) {
  if (!CanPopulate()) return;
  static const uint64_t page = static_cast<uint64_t>(getpagesize());
  static const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t parts =
      std::clamp<uint64_t>(bytes / kBytesPerThread, 1, std::min(kMaxThreads, cores));
  // Rounded up to whole pages: madvise rejects an address inside a page.
  const uint64_t step = (bytes / parts + page - 1) / page * page;
  std::vector<std::thread> threads;
  while (threads.size() + 1 < parts) {
    absl::StatusOr<std::thread> thread = PopulateBeside(begin, step);
    // Without more threads this thread populates the rest.
    if (!thread.ok()) break;
    threads.push_back(*std::move(thread));
    begin += step;
    bytes -= step;
  }
  PopulateAlone(begin, bytes);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace phalanx
