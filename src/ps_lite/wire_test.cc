#include "src/ps_lite/wire.h"

#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps_lite {
namespace {

using ::testing::HasSubstr;

::ps::Message Sample(const std::vector<size_t>& floats, const std::string& body = "text") {
  ::ps::Message message;
  message.meta.head = 3;
  message.meta.app_id = 4;
  message.meta.customer_id = 5;
  message.meta.timestamp = 6;
  message.meta.sender = 131077;
  message.meta.request = true;
  message.meta.pull = true;
  message.meta.priority = -7;
  message.meta.key = ~uint64_t{0};
  message.meta.addr = 8;
  message.meta.val_len = 9;
  message.meta.option = 10;
  message.meta.body = body;
  for (const size_t n : floats) {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), static_cast<float>(n));
    message.AddData(::ps::SArray<float>(values));
  }
  return message;
}

// What travels: the header, then the pieces, each in memory of its own.
std::vector<std::string> Sent(const ::ps::Message& message, size_t piece = kPieceBytes) {
  const Encoded encoded = Encode(message);
  std::vector<std::string> sent = {encoded.header};
  for (const std::string_view array : encoded.in_pieces) {
    for (size_t at = 0; at < array.size(); at += piece) sent.emplace_back(array.substr(at, piece));
  }
  return sent;
}

std::string Take(Assembly* assembly, const std::string& bytes) {
  const auto owner = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  return assembly->Take(owner->data(), owner->size(), owner);
}

void ExpectSame(const ::ps::Message& got, const ::ps::Message& sent) {
  EXPECT_EQ(got.meta.DebugString(), [&] {
    ::ps::Meta meta = sent.meta;
    return meta.DebugString();
  }());
  EXPECT_EQ(got.meta.priority, sent.meta.priority);
  EXPECT_EQ(got.meta.addr, sent.meta.addr);
  EXPECT_EQ(got.meta.val_len, sent.meta.val_len);
  EXPECT_EQ(got.meta.option, sent.meta.option);
  EXPECT_EQ(got.meta.data_size, sent.meta.data_size);
  EXPECT_EQ(got.meta.data_type, sent.meta.data_type);
  ASSERT_EQ(got.data.size(), sent.data.size());
  for (size_t i = 0; i < got.data.size(); ++i) {
    ASSERT_EQ(got.data[i].size(), sent.data[i].size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data[i].data()) % alignof(double), 0u);
    EXPECT_EQ(std::string(got.data[i].begin(), got.data[i].end()),
              std::string(sent.data[i].begin(), sent.data[i].end()));
  }
}

TEST(Wire, MessagesArriveAsTheyWere) {
  Assembly assembly;
  // None, small ones, one at the limit of a header, one of a piece, one of several pieces.
  for (const std::vector<size_t>& floats : std::vector<std::vector<size_t>>{
           {}, {0}, {1, 3, 5}, {4096, 4096, 4096, 4096, 4096}, {5000, 2}, {2, 600000, 0, 300000}}) {
    for (const size_t piece : {kPieceBytes, size_t{1000}}) {
      const ::ps::Message message = Sample(floats);
      for (const std::string& each : Sent(message, piece)) {
        ASSERT_FALSE(assembly.complete());
        ASSERT_EQ(Take(&assembly, each), "");
      }
      ASSERT_TRUE(assembly.complete());
      ExpectSame(assembly.Release(), message);
    }
  }
}

TEST(Wire, ALongTextTravelsInPieces) {
  const ::ps::Message message = Sample({1}, std::string(3 << 20, 'x'));
  Assembly assembly;
  const std::vector<std::string> sent = Sent(message);
  EXPECT_EQ(sent.size(), 4u);
  for (const std::string& each : sent) ASSERT_EQ(Take(&assembly, each), "");
  EXPECT_EQ(assembly.Release().meta.body, message.meta.body);
}

TEST(Wire, NoHeaderIsLargerThanAMessage) {
  const std::vector<size_t> many(64, 3000);
  for (const std::string& each : Sent(Sample(many))) EXPECT_LE(each.size(), kMostHeaderBytes);
}

TEST(Wire, AnArrayOfOnePieceIsUsedWhereItIs) {
  const ::ps::Message message = Sample({100000});
  const std::vector<std::string> sent = Sent(message);
  ASSERT_EQ(sent.size(), 2u);
  Assembly assembly;
  ASSERT_EQ(Take(&assembly, sent[0]), "");
  const auto owner = std::make_shared<std::string>(sent[1]);
  ASSERT_EQ(assembly.Take(owner->data(), owner->size(), owner), "");
  const ::ps::Message got = assembly.Release();
  EXPECT_EQ(got.data[0].data(), owner->data());
  EXPECT_GT(owner.use_count(), 1);
}

TEST(Wire, BytesOfAnotherKindAreRefused) {
  const std::string header = Sent(Sample({5, 7}))[0];
  for (size_t size = 0; size < header.size(); ++size) {
    Assembly assembly;
    EXPECT_NE(Take(&assembly, header.substr(0, size)), "") << size;
  }
  // Any byte can be another one: an error, or a message.
  for (size_t at = 0; at < header.size(); ++at) {
    std::string other = header;
    other[at] = static_cast<char>(other[at] ^ 0xff);
    Assembly assembly;
    const std::string wrong = Take(&assembly, other);
    if (wrong.empty() && assembly.complete()) assembly.Release();
  }
}

TEST(Wire, ArraysWithoutATypeAreOfAnother) {
  ::ps::Message message;
  message.data.resize(3);
  message.meta.data_type = {::ps::FLOAT};
  EXPECT_EQ(WrongWith(message), "");
  Assembly assembly;
  for (const std::string& each : Sent(message)) ASSERT_EQ(Take(&assembly, each), "");
  ASSERT_TRUE(assembly.complete());
  EXPECT_EQ(assembly.Release().meta.data_type,
            (std::vector<::ps::DataType>{::ps::FLOAT, ::ps::OTHER, ::ps::OTHER}));
}

TEST(Wire, ManyArraysAreRefusedWhereTheyAreSent) {
  ::ps::Message message;
  message.data.resize(kMostArrays - 1);
  EXPECT_EQ(WrongWith(message), "");
  Assembly assembly;
  for (const std::string& each : Sent(message)) ASSERT_EQ(Take(&assembly, each), "");
  message.data.resize(kMostArrays);
  EXPECT_THAT(WrongWith(message), HasSubstr("1024 arrays: at most 1023"));
}

TEST(Wire, TheSizeOfAllArraysIsAtMostAnInt) {
  ::ps::Message message;
  message.meta.data_size = std::numeric_limits<int>::max() - 3;
  message.AddData(::ps::SArray<char>(std::vector<char>(5)));
  EXPECT_EQ(message.meta.data_size, std::numeric_limits<int>::max());
}

TEST(Wire, APieceThatIsTooLongIsRefused) {
  Assembly assembly;
  const std::vector<std::string> sent = Sent(Sample({5000}));
  ASSERT_EQ(Take(&assembly, sent[0]), "");
  EXPECT_THAT(Take(&assembly, sent[1] + "x"), HasSubstr("larger than what is missing"));
  EXPECT_THAT(Take(&assembly, ""), HasSubstr("larger than what is missing"));
}

}  // namespace
}  // namespace phalanx::ps_lite
