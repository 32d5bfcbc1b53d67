#include "src/common/io/utf8.h"

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace phalanx {
namespace {

// Encodes any number as UTF-8 would, also those that UTF-8 forbids.
std::string Encoded(uint32_t code, int bytes) {
  if (bytes == 1) return std::string(1, static_cast<char>(code));
  constexpr uint32_t kFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
  std::string text(1, static_cast<char>(kFirst[bytes] | (code >> (6 * (bytes - 1)))));
  for (int i = bytes - 2; i >= 0; --i) {
    text += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f));
  }
  return text;
}

int BytesOf(uint32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

TEST(Utf8Test, EveryCharacterIsTakenInItsShortestFormAlone) {
  for (uint32_t code = 0; code < 0x110000; code += code < 0x11000 ? 1 : 61) {
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    EXPECT_EQ(IsUtf8(Encoded(code, BytesOf(code))), !surrogate) << code;
    for (int bytes = BytesOf(code) + 1; bytes <= 4; ++bytes) {
      EXPECT_FALSE(IsUtf8(Encoded(code, bytes))) << code << " in " << bytes;
    }
  }
  EXPECT_TRUE(IsUtf8(Encoded(0x10ffff, 4)));
  EXPECT_FALSE(IsUtf8(Encoded(0x110000, 4)));
}

TEST(Utf8Test, TruncatedAndStrayBytesAreInvalid) {
  const std::string all = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
  EXPECT_TRUE(IsUtf8(all));
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8(absl::string_view("\0", 1)));
  for (const size_t cut : {2, 4, 5, 7, 8, 9}) {
    EXPECT_FALSE(IsUtf8(all.substr(0, cut))) << cut;
    EXPECT_FALSE(IsUtf8(all.substr(cut))) << cut;
  }
  for (const char* text : {"caf\xe9", "\x80", "\xff", "\xc0\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

}  // namespace
}  // namespace phalanx
