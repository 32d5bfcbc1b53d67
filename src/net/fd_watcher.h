// FdWatcher: readiness of one file descriptor, as one-shot callbacks on an EventLoop.
//
// Made by EventLoop::Watch; for the rims that own raw descriptors (TCP streams, the Unix socket,
// pidfds). Loop thread only. The descriptor stays its owner's: destroy the watcher before closing
// it, and before the loop.
#ifndef PHALANX_NET_FD_WATCHER_H_
#define PHALANX_NET_FD_WATCHER_H_

#include "src/common/executor.h"

namespace phalanx::net {

class FdWatcher {
 public:
  // No callback runs after it.
  virtual ~FdWatcher() = default;

  // Calls `ready` once, in a later turn, when a read (write) would not block, end of file and
  // errors included. Level-triggered: a descriptor that is ready already is reported. One of each
  // may be armed; arming again replaces the callback, an empty one disarms.
  virtual void OnReadable(Task ready) = 0;
  virtual void OnWritable(Task ready) = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_FD_WATCHER_H_
