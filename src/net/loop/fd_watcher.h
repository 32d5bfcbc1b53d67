// FdWatcher: readiness of one file descriptor, as one-shot callbacks on an EventLoop.
//
// Created by EventLoop::Watch, for the rims that own raw descriptors (TCP streams, the Unix socket,
// pidfds). Loop thread only. The watcher does not own the descriptor: destroy the watcher before
// the descriptor is closed, and before the loop.
#ifndef PHALANX_NET_LOOP_FD_WATCHER_H_
#define PHALANX_NET_LOOP_FD_WATCHER_H_

#include "src/common/time/executor.h"

namespace phalanx::net {

class FdWatcher {
 public:
  // After the destructor no callback runs.
  virtual ~FdWatcher() = default;

  // Calls `ready` once, in a later turn, when a read (write) would not block, including at end of
  // file and after errors. Level-triggered: a descriptor that is already ready is reported. At most
  // one callback of each kind is armed; arming again replaces it, an empty one disarms.
  virtual void OnReadable(Task ready) = 0;
  virtual void OnWritable(Task ready) = 0;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_LOOP_FD_WATCHER_H_
