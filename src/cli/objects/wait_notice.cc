#include "src/cli/objects/wait_notice.h"

#include <utility>

namespace phalanx::runtime {

WaitNotice::WaitNotice(std::function<void()> say)
    : thread_([say = std::move(say), ended = ended_.get_future()] {
        if (ended.wait_for(absl::ToChronoSeconds(kSilent)) == std::future_status::timeout) say();
      }) {}

WaitNotice::~WaitNotice() {
  ended_.set_value();
  thread_.join();
}

}  // namespace phalanx::runtime
