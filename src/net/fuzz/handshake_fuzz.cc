// Fuzzes both ends of Handshake with any input in pieces. A peer that does not know the secret
// never completes the handshake. Two ends that know it always do, however their messages are cut,
// and leave the following bytes unread.
//
// The first byte selects the role (bit 0), a well-formed hello before the input (bit 1), and the
// cuts. Between two honest ends, the input follows the handshake.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "src/common/check.h"
#include "src/net/stream/handshake.h"

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
  PHALANX_CHECK(!victim.done(), "a peer without the secret never completes the handshake");
}

// Passes the output of `from` and then `after` to `to`, in pieces. Returns the bytes that `to` left
// unread.
std::string Deliver(std::string words, absl::string_view after, size_t piece, Handshake& to,
                    std::string& answer) {
  words.append(after.data(), after.size());
  absl::string_view rest = words;
  while (!rest.empty() && !to.done()) {
    const absl::string_view part = rest.substr(0, piece);
    const absl::StatusOr<size_t> used = to.Consume(part);
    PHALANX_CHECK(used.ok(), "two ends with one secret agree");
    rest.remove_prefix(*used);
    answer += to.TakeOutput();
  }
  return std::string(rest);
}

void Agree(size_t piece, absl::string_view after) {
  const std::string secret = "a secret that both know";
  Handshake dialer(Config(secret), Handshake::Role::kDialer, std::string(kNonceBytes, 'd'));
  Handshake acceptor(Config(secret), Handshake::Role::kAcceptor, std::string(kNonceBytes, 'a'));
  std::string to_acceptor = dialer.TakeOutput();
  std::string to_dialer = acceptor.TakeOutput();
  Deliver(std::exchange(to_acceptor, {}), "", piece, acceptor, to_dialer);
  Deliver(std::exchange(to_dialer, {}), "", piece, dialer, to_acceptor);
  PHALANX_CHECK(dialer.done(), "the dialer is through");
  const std::string left = Deliver(to_acceptor, after, piece, acceptor, to_dialer);
  PHALANX_CHECK(acceptor.done() && to_dialer.empty(), "so is the acceptor, without a word more");
  PHALANX_CHECK(left == after, "what follows the handshake is not its own");
  PHALANX_CHECK(dialer.peer() == NodeKey({1, 2}) && acceptor.peer() == NodeKey({1, 2}), "names");
}

}  // namespace
}  // namespace phalanx::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phalanx::net;
  if (size == 0) return 0;
  const auto role = (data[0] & 1) != 0 ? Handshake::Role::kDialer : Handshake::Role::kAcceptor;
  Attack(role, (data[0] & 2) != 0, 1 + data[0] / 4u,
         absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  Agree(1 + data[0] / 4u, absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
