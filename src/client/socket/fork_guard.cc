#include "src/client/socket/fork_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "src/common/threads/mutex.h"

namespace phalanx::internal {
namespace {

// Never destroyed: clients can outlive static destructors.
struct Guard {
  std::atomic<uint64_t> forks{0};
  // This process's number, on a page that is zero in every child. A child then draws a new number
  // from `next_mark`, which children inherit.
  std::atomic<uint64_t>* mark = nullptr;
  std::atomic<uint64_t> next_mark{1};
  // Used where the kernel cannot wipe pages.
  std::atomic<uint64_t> plain_mark{0};

  Mutex mu;
  std::set<int> descriptors ABSL_GUARDED_BY(mu);
};

Guard* guard = nullptr;

void BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  // Held across fork, so that the child's copy of the set is consistent and its mutex is free.
  guard->mu.Lock();
  guard->forks.fetch_add(1);
}

void AfterForkInParent() ABSL_NO_THREAD_SAFETY_ANALYSIS { guard->mu.Unlock(); }

void AfterForkInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (const int fd : guard->descriptors) close(fd);
  guard->descriptors.clear();
  // Needed where the kernel cannot wipe the page.
  guard->mark->store(0);
  guard->mu.Unlock();
}

std::atomic<uint64_t>* WipedPage() {
  const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, size, MADV_WIPEONFORK) != 0) {
    munmap(page, size);
    return nullptr;
  }
  return new (page) std::atomic<uint64_t>(0);
}

Guard& TheGuard() {
  static Guard* const made = [] {
    auto* g = new Guard;
    g->mark = WipedPage();
    if (g->mark == nullptr) g->mark = &g->plain_mark;
    guard = g;
    pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    return g;
  }();
  return *made;
}

uint64_t CurrentMark() {
  Guard& g = TheGuard();
  uint64_t mark = g.mark->load();
  if (mark != 0) return mark;
  // Threads race for the first number; all use the winner's.
  const uint64_t fresh = g.next_mark.fetch_add(1);
  return g.mark->compare_exchange_strong(mark, fresh) ? fresh : mark;
}

}  // namespace

ProcessMark ProcessMark::Current() {
  ProcessMark current;
  current.mark_ = CurrentMark();
  return current;
}

bool ProcessMark::Forked() const { return mark_ != CurrentMark(); }

uint64_t ForkCount() { return TheGuard().forks.load(); }

void CloseInChildren(int fd) {
  Guard& g = TheGuard();
  MutexLock lock(g.mu);
  g.descriptors.insert(fd);
}

void KeepInChildren(int fd) {
  Guard& g = TheGuard();
  MutexLock lock(g.mu);
  g.descriptors.erase(fd);
}

}  // namespace phalanx::internal
