// The body of shard_fuzz, for callers that bring inputs of their own. Testonly.
#ifndef PHALANX_DIRECTORY_FUZZ_SHARD_FUZZ_H_
#define PHALANX_DIRECTORY_FUZZ_SHARD_FUZZ_H_

#include "absl/strings/string_view.h"
#include "src/common/testing/message_listener.h"

namespace phalanx::directory {

// Plays one input; aborts if an invariant breaks. A function of the input alone; any thread.
void PlayShardInput(absl::string_view input, const phalanx::testing::MessageListener& listener);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_FUZZ_SHARD_FUZZ_H_
