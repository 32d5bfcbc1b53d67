// The body of store_fuzz, for callers that bring inputs of their own. Testonly.
#ifndef PHALANX_OBJECT_STORE_TESTING_STORE_FUZZ_H_
#define PHALANX_OBJECT_STORE_TESTING_STORE_FUZZ_H_

#include "absl/strings/string_view.h"
#include "src/common/testing/message_listener.h"

namespace phalanx::object_store::testing {

// Plays one input; aborts if an invariant breaks. A function of the input alone; any thread.
void PlayStoreInput(absl::string_view input, const phalanx::testing::MessageListener& listener);

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_OBJECT_STORE_TESTING_STORE_FUZZ_H_
