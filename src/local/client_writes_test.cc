// Writers and Puts of one client, over blocks of the heap.
#include "src/local/client_writes.h"

#include <string>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::testing::StatusIs;

// A block of 10 bytes, with or without a file of its own.
class TestBlock final : public MemoryBlock {
 public:
  explicit TestBlock(bool has_file = false) : has_file_(has_file) {}
  absl::Span<char> bytes() const override { return {bytes_, sizeof(bytes_)}; }
  int read_only_fd() const override { return -1; }
  int writable_fd() const override { return has_file_ ? 0 : -1; }
  int OpenFor(ViewerId) override { return -1; }
  uint64_t offset() const override { return 0; }
  uint64_t file_bytes() const override { return 0; }
  uint64_t file_id() const override { return 0; }
  void Condemn(ViewerId viewer) override { condemned_for = viewer; }

  ViewerId condemned_for = 0;

 private:
  const bool has_file_;
  mutable char bytes_[10] = {};
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ClientWritesTest, BytesOfAWriterWithoutAFileAreCopied) {
  ClientWrites writes;
  const auto block = std::make_shared<TestBlock>();
  writes.Open(1, block, 10);
  PHALANX_EXPECT_OK(writes.Publish(1, 4, "abcd"));
  PHALANX_EXPECT_OK(writes.Publish(1, 4, ""));
  PHALANX_EXPECT_OK(writes.Seal(1, "efghij"));
  EXPECT_EQ(std::string(block->bytes().data(), 10), "abcdefghij");
  EXPECT_THAT(writes.Seal(1, ""), StatusIs(kInvalid));
}

TEST(ClientWritesTest, RejectsBytesThatDoNotFit) {
  ClientWrites writes;
  writes.Open(1, std::make_shared<TestBlock>(), 10);
  EXPECT_THAT(writes.Publish(1, 11, "eleven byte"), StatusIs(kInvalid));
  EXPECT_THAT(writes.Publish(1, 4, "abc"), StatusIs(kInvalid));
  PHALANX_EXPECT_OK(writes.Publish(1, 4, "abcd"));
  EXPECT_THAT(writes.Publish(1, 3, ""), StatusIs(kInvalid));
  EXPECT_THAT(writes.Seal(1, "efghi"), StatusIs(kInvalid));
  EXPECT_THAT(writes.Publish(2, 1, "a"), StatusIs(kInvalid));
}

TEST(ClientWritesTest, AWriterWithAFileSendsNoBytes) {
  ClientWrites writes;
  writes.Open(1, std::make_shared<TestBlock>(/*has_file=*/true), 10);
  EXPECT_THAT(writes.Publish(1, 4, "abcd"), StatusIs(kInvalid));
  PHALANX_EXPECT_OK(writes.Publish(1, 4, ""));
  PHALANX_EXPECT_OK(writes.Seal(1, ""));
}

TEST(ClientWritesTest, OnlyABlockWithAFileIsCondemned) {
  ClientWrites writes;
  const auto plain = std::make_shared<TestBlock>();
  const auto file = std::make_shared<TestBlock>(/*has_file=*/true);
  writes.Open(2, plain, 10);
  writes.Open(1, file, 10);
  EXPECT_EQ(writes.writers(), (std::vector<WriterId>{1, 2}));
  for (const WriterId writer : writes.writers()) writes.Condemn(writer, 7);
  EXPECT_EQ(plain->condemned_for, 0u);
  EXPECT_EQ(file->condemned_for, 7u);
  PHALANX_EXPECT_OK(writes.Abort(1));
  EXPECT_THAT(writes.Abort(1), StatusIs(kInvalid));
}

TEST(ClientWritesTest, PutsAreLimitedButOneAlwaysFits) {
  ClientWrites writes;
  const uint64_t limit = local::kMaxPutBytesInFlight;
  PHALANX_EXPECT_OK(writes.AdmitPut(limit + 1));
  EXPECT_THAT(writes.AdmitPut(1), StatusIs(absl::StatusCode::kResourceExhausted));
  writes.PutStored(limit + 1);
  PHALANX_EXPECT_OK(writes.AdmitPut(limit));
  EXPECT_THAT(writes.AdmitPut(1), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace phalanx::object_store
