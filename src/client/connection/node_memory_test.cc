// Files and pins of a client, with files made here.
#include "src/client/connection/node_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::internal {
namespace {

constexpr uint64_t kBytes = 8192;

int NewFile() {
  const int fd = memfd_create("node_memory_test", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, kBytes), 0);
  return fd;
}

local::Mapped At(uint64_t pin, uint64_t file, uint64_t offset, uint64_t size) {
  local::Mapped answer;
  answer.pin = pin;
  answer.file = file;
  answer.offset = offset;
  answer.object_size = size;
  return answer;
}

TEST(NodeMemoryTest, APinHoldsAMappedFile) {
  NodeMemory memory;
  ASSERT_TRUE(memory.AddFile({1, false, kBytes}, NewFile()));
  const auto mapping = memory.Pin(At(5, 1, 4096, 4096));
  PHALANX_ASSERT_OK(mapping);
  EXPECT_TRUE(memory.has_pins());
  memory.Unpin(5, mapping->get());
  EXPECT_FALSE(memory.has_pins());
}

TEST(NodeMemoryTest, AnAnswerWithoutUsableFileLeavesNoPin) {
  NodeMemory memory;
  EXPECT_FALSE(memory.AddFile({1, false, kBytes}, -1));
  EXPECT_EQ(memory.Pin(At(5, 1, 0, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(memory.AddFile({1, false, kBytes}, NewFile()));
  EXPECT_EQ(memory.Pin(At(5, 1, 4096, 4097)).status().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(memory.has_pins());
}

TEST(NodeMemoryTest, AWriterNeedsAWritableFile) {
  NodeMemory memory;
  ASSERT_TRUE(memory.AddFile({1, false, kBytes}, NewFile()));
  const local::Granted granted{1, 2, true, 1, 0};
  EXPECT_EQ(memory.TakeWriter(granted, 1).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(memory.AddFile({1, true, kBytes}, NewFile()));
  EXPECT_EQ(memory.TakeWriter(granted, kBytes + 1).status().code(), absl::StatusCode::kInternal);
  const auto mapping = memory.TakeWriter(granted, kBytes);
  PHALANX_ASSERT_OK(mapping);
  memory.PutBack(mapping->get());
}

TEST(NodeMemoryTest, UnusedFilesBeyondTheLimitAreForgotten) {
  NodeMemory memory;
  for (uint64_t file = 0; file <= kMaxIdleMappings; ++file) {
    ASSERT_TRUE(memory.AddFile({file, false, kBytes}, NewFile()));
  }
  const auto mapping = memory.Pin(At(5, 0, 0, 1));
  PHALANX_ASSERT_OK(mapping);
  EXPECT_TRUE(memory.TakeToForget().empty());
  memory.Unpin(5, mapping->get());
  const auto keys = memory.TakeToForget();
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys[0].file, 1u);
  EXPECT_NE(memory.Forgotten({1, false}), nullptr);
  EXPECT_EQ(memory.Forgotten({1, false}), nullptr);
}

TEST(NodeMemoryTest, LeaveNamesEveryPinInFramesOfTheLimit) {
  NodeMemory memory;
  ASSERT_TRUE(memory.AddFile({1, false, kBytes}, NewFile()));
  EXPECT_EQ(memory.LeaveMessages().size(), 1u);
  for (uint64_t pin = 0; pin <= local::kMaxPinsPerFrame; ++pin) {
    PHALANX_ASSERT_OK(memory.Pin(At(pin, 1, 0, 1)));
  }
  const auto leaves = memory.LeaveMessages();
  ASSERT_EQ(leaves.size(), 2u);
  EXPECT_TRUE(leaves[0].more);
  EXPECT_EQ(leaves[0].pins.size(), local::kMaxPinsPerFrame);
  EXPECT_FALSE(leaves[1].more);
  EXPECT_EQ(leaves[1].pins.size(), 1u);
}

TEST(NodeMemoryTest, BuffersKeepTheirBytesAfterTheFilesAreGivenUp) {
  NodeMemory memory;
  ASSERT_TRUE(memory.AddFile({1, false, kBytes}, NewFile()));
  const auto mapping = memory.Pin(At(5, 1, 0, 1));
  PHALANX_ASSERT_OK(mapping);
  memory.GiveUpFiles();
  EXPECT_EQ((*mapping)->data()[0], '\0');
  EXPECT_EQ(memory.Pin(At(6, 1, 0, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  memory.Unpin(5, mapping->get());
}

// Buffers for inputs of group calls.

GroupBuffer Buffer(uint64_t number, uint64_t bytes) {
  return {.number = number, .mapping = nullptr, .data = nullptr, .bytes = bytes};
}
// A free buffer of each size, numbered from 1.
GroupBuffers FreeOf(const std::vector<uint64_t>& sizes) {
  GroupBuffers buffers;
  buffers.BeginGroup();
  for (size_t i = 0; i < sizes.size(); ++i) {
    buffers.Use(Buffer(i + 1, sizes[i]), 100 + i);
    buffers.Free({i + 1});
  }
  return buffers;
}

TEST(GroupBuffersTest, AnInputGetsTheSmallestFreeBufferInWhichItFits) {
  GroupBuffers buffers = FreeOf({50, 10, 30, 20});
  EXPECT_EQ(buffers.Take(15)->number, 4u);
  EXPECT_EQ(buffers.Take(15)->number, 3u);
  EXPECT_EQ(buffers.Take(15)->number, 1u);
  EXPECT_FALSE(buffers.Take(15).has_value());
  EXPECT_EQ(buffers.Take(10)->number, 2u);
}

TEST(GroupBuffersTest, OfManyBuffersTheSmallestFreeOneIsReplaced) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i + 1 < kManyGroupBuffers; ++i) sizes.push_back(10 + i);
  GroupBuffers buffers = FreeOf(sizes);
  EXPECT_FALSE(buffers.TakeSurplus().has_value());
  buffers.Use(Buffer(1000, 1), 1);
  EXPECT_EQ(buffers.TakeSurplus()->number, 1u);
  EXPECT_FALSE(buffers.TakeSurplus().has_value());
}

TEST(GroupBuffersTest, ABufferIsGivenUpOnlyForTheCallThatUsesIt) {
  GroupBuffers buffers;
  buffers.BeginGroup();
  buffers.Use(Buffer(1, 10), 7);
  buffers.Free({1, 2});
  EXPECT_FALSE(buffers.GiveUp(7).has_value());
  buffers.Use(*buffers.Take(10), 8);
  EXPECT_FALSE(buffers.GiveUp(7).has_value());
  EXPECT_EQ(buffers.GiveUp(8)->number, 1u);
  EXPECT_FALSE(buffers.GiveUp(8).has_value());
}

TEST(GroupBuffersTest, ABufferIntoWhichAThreadWritesStaysUntilItsEnd) {
  GroupBuffers buffers;
  buffers.BeginGroup();
  for (uint64_t number = 1; number <= 3; ++number) {
    buffers.Use(Buffer(number, 10), 6 + number, Filling::kUnderWay);
  }
  EXPECT_EQ(buffers.InputOf(7), nullptr);
  // Free, given up, and both.
  buffers.Free({1, 3});
  EXPECT_FALSE(buffers.GiveUp(8).has_value());
  EXPECT_FALSE(buffers.GiveUp(9).has_value());
  EXPECT_FALSE(buffers.Take(10).has_value());
  EXPECT_FALSE(buffers.EndFilling(7).has_value());
  EXPECT_EQ(buffers.Take(10)->number, 1u);
  EXPECT_EQ(buffers.EndFilling(8)->number, 2u);
  EXPECT_EQ(buffers.EndFilling(9)->number, 3u);
  EXPECT_FALSE(buffers.EndFilling(9).has_value());
}

TEST(GroupBuffersTest, AnInputIsKnownWhenItIsComplete) {
  GroupBuffers buffers;
  buffers.BeginGroup();
  char bytes[] = "input";
  GroupBuffer buffer = Buffer(1, 5);
  buffer.data = bytes;
  buffers.Use(buffer, 7, Filling::kUnderWay);
  EXPECT_EQ(buffers.InputOf(7), nullptr);
  EXPECT_FALSE(buffers.EndFilling(7).has_value());
  EXPECT_EQ(buffers.InputOf(7), bytes);
  buffers.Free({1});
  EXPECT_EQ(buffers.InputOf(7), nullptr);
}

TEST(GroupBuffersTest, TheLastGroupLeavesNoBuffers) {
  GroupBuffers buffers = FreeOf({10, 20});
  buffers.BeginGroup();
  buffers.Use(*buffers.Take(20), 7);
  EXPECT_TRUE(buffers.EndGroup().empty());
  EXPECT_EQ(buffers.EndGroup().size(), 2u);
  EXPECT_FALSE(buffers.Take(1).has_value());
}

}  // namespace
}  // namespace phalanx::internal
