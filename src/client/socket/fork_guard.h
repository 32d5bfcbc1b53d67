// What fork(2) means to a client. The parent learns that a child was made that sees its memory. The
// child learns that it is a child, and closes the descriptors that it inherited.
//
// A child that kept copies of the sockets would keep the daemon from noticing the parent's end, so
// the copies are closed before fork() returns. This happens only for fork(2) of the C library. A
// raw clone(2) is still recognized as a child, because the kernel wipes a page, but its descriptors
// stay open.
//
// Functions of the process, any thread; also in a child.
#ifndef PHALANX_CLIENT_SOCKET_FORK_GUARD_H_
#define PHALANX_CLIENT_SOCKET_FORK_GUARD_H_

#include <cstdint>

namespace phalanx::internal {

// Identifies this process: the number differs in every descendant that was made without exec.
class ProcessMark {
 public:
  static ProcessMark Current();
  // Returns true in a child of the process that made this mark.
  bool Forked() const;

 private:
  uint64_t mark_ = 0;
};

// Returns how often this process has forked; a fork in progress is counted.
uint64_t ForkCount();

// A descriptor that children close. Call KeepInChildren before closing it here.
void CloseInChildren(int fd);
void KeepInChildren(int fd);

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SOCKET_FORK_GUARD_H_
