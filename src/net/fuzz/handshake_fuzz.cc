// Handshake, both ends, fed with anything in pieces. Whoever does not know the secret never gets
// through; two ends that are left alone do.
//
// The first byte chooses the role (bit 0), whether the input is preceded by a well-formed hello
// (bit 1), and how it is cut.

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/common/check.h"
#include "src/net/handshake.h"

namespace phalanx::net {
namespace {

HandshakeConfig Config(const std::string& secret) {
  HandshakeConfig config;
  config.self = {1, 2};
  config.secret = secret;
  return config;
}

void Attack(Handshake::Role role, bool start_well, size_t piece, absl::string_view input) {
  Handshake victim(Config("a secret that no input guesses"), role, std::string(kNonceBytes, 'n'));
  std::string bytes;
  if (start_well) {
    const bool dialer = role == Handshake::Role::kDialer;
    Handshake other(Config("wrong"), dialer ? Handshake::Role::kAcceptor : Handshake::Role::kDialer,
                    std::string(kNonceBytes, 'm'));
    bytes = other.TakeOutput();
  }
  bytes.append(input.data(), input.size());
  absl::string_view rest = bytes;
  while (!rest.empty()) {
    const absl::string_view part = rest.substr(0, piece);
    const absl::StatusOr<size_t> used = victim.Consume(part);
    (void)victim.TakeOutput();
    if (!used.ok()) break;
    PHALANX_CHECK(*used == part.size(), "an unfinished handshake wants everything");
    rest.remove_prefix(part.size());
  }
  PHALANX_CHECK(!victim.done(), "nobody gets through without the secret");
}

}  // namespace
}  // namespace phalanx::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phalanx::net;
  if (size == 0) return 0;
  const auto role = (data[0] & 1) != 0 ? Handshake::Role::kDialer : Handshake::Role::kAcceptor;
  Attack(role, (data[0] & 2) != 0, 1 + data[0] / 4u,
         absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
