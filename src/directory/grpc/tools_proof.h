// The metadata of a tools call that proves the caller's right: a nonce, and a proof of the secret
// over the nonce, the method and the request.
//
// Any thread.
#ifndef PHALANX_DIRECTORY_GRPC_TOOLS_PROOF_H_
#define PHALANX_DIRECTORY_GRPC_TOOLS_PROOF_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "src/net/stream/handshake.h"

namespace phalanx::directory {

inline constexpr char kToolsProofKey[] = "phalanx-proof-bin";

// The proof alone; in the metadata it follows its nonce. `method`: "ListObjects" and the like.
inline std::string ToolsProof(absl::string_view secret, absl::string_view method,
                              const google::protobuf::MessageLite& request,
                              absl::string_view nonce) {
  return net::ProveSecret(secret, "phalanx tools", {method, request.SerializeAsString(), nonce});
}

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_TOOLS_PROOF_H_
