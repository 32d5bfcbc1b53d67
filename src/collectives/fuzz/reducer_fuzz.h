// The body of reducer_fuzz, for callers that bring inputs of their own. Testonly.
#ifndef PHALANX_COLLECTIVES_FUZZ_REDUCER_FUZZ_H_
#define PHALANX_COLLECTIVES_FUZZ_REDUCER_FUZZ_H_

#include "absl/strings/string_view.h"
#include "src/common/testing/message_listener.h"

namespace phalanx::collectives::testing {

// Plays one input; aborts if an invariant breaks. A function of the input alone; any thread.
void PlayReducerInput(absl::string_view input, const phalanx::testing::MessageListener& listener);

}  // namespace phalanx::collectives::testing

#endif  // PHALANX_COLLECTIVES_FUZZ_REDUCER_FUZZ_H_
