// What fork(2) means to a client: the parent learns that a child was made that sees its memory, the
// child learns that it is one and lets go of the descriptors it got.
//
// A child that kept its copies of the sockets would keep the daemon from noticing the parent's end,
// so they are closed there before fork() returns. Only fork(2) of the C library does this; a raw
// clone(2) is recognized as a child all the same (the kernel wipes a page), without the closing.
//
// Functions of the process, any thread; also in a child.
#ifndef PHALANX_RUNTIME_CLIENT_FORK_GUARD_H_
#define PHALANX_RUNTIME_CLIENT_FORK_GUARD_H_

#include <cstdint>

namespace phalanx::internal {

// Which process this is: another number in every descendant that came about without exec.
class ProcessMark {
 public:
  static ProcessMark Current();
  // True in a child of the process that made this mark.
  bool Forked() const;

 private:
  uint64_t mark_ = 0;
};

// How often this process has forked; a fork under way counts already.
uint64_t ForkCount();

// A descriptor that children close. Call the second one before closing it here.
void CloseInChildren(int fd);
void KeepInChildren(int fd);

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_FORK_GUARD_H_
