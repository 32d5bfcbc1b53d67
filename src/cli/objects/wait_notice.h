// Says that a blocking call waits.
#ifndef PHALANX_CLI_OBJECTS_WAIT_NOTICE_H_
#define PHALANX_CLI_OBJECTS_WAIT_NOTICE_H_

#include <functional>
#include <future>
#include <thread>

#include "absl/time/time.h"

namespace phalanx::runtime {

class WaitNotice {
 public:
  // A shorter wait is not worth a message; a busy machine alone can take a second.
  static constexpr absl::Duration kSilent = absl::Seconds(3);

  // Calls `say` on a thread of its own if this object lives longer than kSilent. The owner does
  // nothing but the blocking call meanwhile.
  explicit WaitNotice(std::function<void()> say);
  // Returns after `say`, if that has begun.
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

 private:
  std::promise<void> ended_;
  std::thread thread_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_WAIT_NOTICE_H_
