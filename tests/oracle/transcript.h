// The messages that a core sends in one world: a digest of them, and the text on demand.
//
// Two builds of a core that send the same messages to the same nodes in the same order have the
// same digest. A message counts as its deterministic serialization, in which fields and enum values
// are numbers: renaming them changes nothing. Testonly; one thread.
#ifndef PHALANX_TESTS_ORACLE_TRANSCRIPT_H_
#define PHALANX_TESTS_ORACLE_TRANSCRIPT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace phalanx::oracle {

// 128 bits of XXH3, most significant first.
using Digest = std::array<unsigned char, 16>;
Digest DigestOf(absl::string_view bytes);
// 32 hexadecimal digits.
std::string ToString(const Digest& digest);

class Transcript {
 public:
  struct Options {
    // False: texts for people (kTextFields in the source, the messages of statuses) are left out,
    // so that two builds can be compared whose error texts differ.
    bool texts = true;
    // Every line on stdout.
    bool print = false;
  };

  explicit Transcript(Options options) : options_(options) {}

  // `to` names the destination by number.
  void Add(absl::string_view to, const google::protobuf::Message& message);
  // For effects that are no protos: `line` has all their fields.
  void Add(absl::string_view to, absl::string_view line);
  // Of an answer or of the world itself: the code, and the message if texts count.
  void Add(absl::string_view to, const absl::Status& status);

  uint64_t messages() const { return messages_; }
  // Of everything that was added.
  const Digest& digest() const { return digest_; }

 private:
  void Chain(absl::string_view to, absl::string_view bytes);

  const Options options_;
  uint64_t messages_ = 0;
  Digest digest_ = {};
  std::string buffer_;
};

}  // namespace phalanx::oracle

#endif  // PHALANX_TESTS_ORACLE_TRANSCRIPT_H_
