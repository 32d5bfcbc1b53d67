#include "tests/oracle/transcript.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace phalanx::oracle {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Names of `string` fields that only people read. A field that gets another name is added here
// under both, so that builds from before and after still compare.
constexpr absl::string_view kTextFields[] = {"message", "reason", "state", "trouble"};

bool IsText(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING &&
         std::find(std::begin(kTextFields), std::end(kTextFields), field.name()) !=
             std::end(kTextFields);
}

void ClearTexts(Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (IsText(*field)) {
      reflection.ClearField(message, field);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    } else if (!field->is_repeated()) {
      ClearTexts(reflection.MutableMessage(message, field));
    } else {
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        ClearTexts(reflection.MutableRepeatedMessage(message, field, i));
      }
    }
  }
}

std::string Serialize(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    // The order of a map's entries is otherwise another one in each process.
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace

Digest DigestOf(absl::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest digest;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.begin());
  return digest;
}

std::string ToString(const Digest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

void Transcript::Chain(absl::string_view to, absl::string_view bytes) {
  ++messages_;
  buffer_.assign(digest_.begin(), digest_.end());
  absl::StrAppend(&buffer_, to, " ", bytes.size(), " ", bytes);
  digest_ = DigestOf(buffer_);
}

void Transcript::Add(absl::string_view to, const Message& message) {
  if (options_.texts) {
    Chain(to, Serialize(message));
    if (options_.print)
      std::printf("%s %s\n", std::string(to).c_str(), message.ShortDebugString().c_str());
    return;
  }
  const std::unique_ptr<Message> copy(message.New());
  copy->CopyFrom(message);
  ClearTexts(copy.get());
  Chain(to, Serialize(*copy));
  if (options_.print)
    std::printf("%s %s\n", std::string(to).c_str(), copy->ShortDebugString().c_str());
}

void Transcript::Add(absl::string_view to, absl::string_view line) {
  Chain(to, line);
  if (options_.print) {
    std::printf("%s %s\n", std::string(to).c_str(), absl::CHexEscape(line).c_str());
  }
}

void Transcript::Add(absl::string_view to, const absl::Status& status) {
  Add(to, absl::string_view(absl::StrCat(static_cast<int>(status.code()), options_.texts ? " " : "",
                                         options_.texts ? status.message() : "")));
}

}  // namespace phalanx::oracle
