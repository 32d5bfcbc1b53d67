// MessageListener: what a world around a core calls with every message that the core sends, so that
// tests/oracle can compare builds. Testonly.
#ifndef PHALANX_COMMON_TESTING_MESSAGE_LISTENER_H_
#define PHALANX_COMMON_TESTING_MESSAGE_LISTENER_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace phalanx::testing {

// `to` names the destination, or the kind of an answer. An empty listener is not called.
using MessageListener =
    std::function<void(absl::string_view to, const google::protobuf::Message& message)>;

}  // namespace phalanx::testing

#endif  // PHALANX_COMMON_TESTING_MESSAGE_LISTENER_H_
