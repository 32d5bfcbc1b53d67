// The tests that every SharedMemory passes. Testonly.
//
// An implementation includes this header in one test and says
//   INSTANTIATE_TEST_SUITE_P(Heap, SharedMemoryConformance, ::testing::Values(&MakeHarness));
#ifndef PHALANX_OBJECT_STORE_MEMORY_SHARED_MEMORY_CONFORMANCE_H_
#define PHALANX_OBJECT_STORE_MEMORY_SHARED_MEMORY_CONFORMANCE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store {

// A memory and the loop on which it is used. The test's thread calls everything.
class SharedMemoryHarness {
 public:
  virtual ~SharedMemoryHarness() = default;
  // Runs `body` on the loop, and then what it posted; returns after that.
  virtual void Run(std::function<void()> body) = 0;
  // Runs the loop until `done` is true.
  virtual void RunUntil(std::function<bool()> done) = 0;
  // REQUIRES: on the loop.
  virtual SharedMemory& memory() = 0;
  // Blocks outlive it.
  virtual void DestroyMemory() = 0;
  // From here on no fresh memory can be had (true), or it can again.
  virtual void RunOut(bool out) = 0;
};

// The same with a status that shares nothing with others: the counts of shared ones are in a
// library that ThreadSanitizer does not see into.
inline absl::StatusOr<std::shared_ptr<MemoryBlock>> OwnStatus(
    absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
  if (result.ok()) return result;
  return absl::Status(result.status().code(), result.status().message());
}

using MakeSharedMemoryHarness = std::unique_ptr<SharedMemoryHarness> (*)();

class SharedMemoryConformance : public ::testing::TestWithParam<MakeSharedMemoryHarness> {
 protected:
  using Block = std::shared_ptr<MemoryBlock>;

  absl::StatusOr<Block> Allocate(uint64_t bytes) {
    absl::StatusOr<Block> result = absl::UnknownError("no answer");
    bool done = false;
    bool inside = false;
    harness_->Run([&] {
      inside = true;
      harness_->memory().Allocate(bytes, [&](absl::StatusOr<Block> block) {
        EXPECT_FALSE(inside) << "called inside Allocate";
        result = OwnStatus(std::move(block));
        done = true;
      });
      inside = false;
    });
    harness_->RunUntil([&] { return done; });
    return result;
  }
  SharedMemoryStats Stats() {
    SharedMemoryStats stats;
    harness_->Run([&] { stats = harness_->memory().stats(); });
    return stats;
  }
  void Drop(Block block) {
    harness_->Run([&] { block.reset(); });
  }

  // A block is filled with a pattern of its own, which must be there to the end.
  static void Fill(const Block& block, uint64_t seed) {
    const absl::Span<char> bytes = block->bytes();
    for (size_t i = 0; i < bytes.size(); i += 61) bytes[i] = static_cast<char>(seed * 31 + i);
  }
  static bool Filled(const Block& block, uint64_t seed) {
    const absl::Span<char> bytes = block->bytes();
    for (size_t i = 0; i < bytes.size(); i += 61) {
      if (bytes[i] != static_cast<char>(seed * 31 + i)) return false;
    }
    return true;
  }

  const std::unique_ptr<SharedMemoryHarness> harness_ = GetParam()();
};

TEST_P(SharedMemoryConformance, BlocksHaveTheRequestedSizeAndAreAligned) {
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{64}, uint64_t{65}, uint64_t{4096},
        uint64_t{65537}, kOwnFileBytes - 1, kOwnFileBytes, kOwnFileBytes + 1, uint64_t{5} << 20}) {
    const absl::StatusOr<Block> block = Allocate(bytes);
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ((*block)->bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*block)->bytes().data()) % 64, 0u);
    Fill(*block, bytes);
    EXPECT_TRUE(Filled(*block, bytes));
    EXPECT_LE((*block)->offset() + bytes, std::max((*block)->file_bytes(), bytes));
  }
}

TEST_P(SharedMemoryConformance, BlocksThatLiveNeverShareBytes) {
  const uint64_t seed = testing::TestSeed(7);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  std::map<uint64_t, Block> blocks;
  for (uint64_t step = 1; step <= 600; ++step) {
    if (blocks.size() > 40 || (!blocks.empty() && random.Chance(0.4))) {
      auto it = blocks.begin();
      std::advance(it, random.Below(blocks.size()));
      ASSERT_TRUE(Filled(it->second, it->first));
      if (random.Chance(0.2)) harness_->Run([&] { it->second->Condemn(step); });
      Drop(std::move(it->second));
      blocks.erase(it);
      continue;
    }
    const bool large = random.Chance(0.1);
    const uint64_t bytes = large ? kOwnFileBytes + random.Below(3 << 20) : random.Below(300000);
    const absl::StatusOr<Block> block = Allocate(bytes);
    ASSERT_TRUE(block.ok()) << block.status();
    Fill(*block, step);
    blocks.emplace(step, *block);
  }
  for (auto& [step, block] : blocks) EXPECT_TRUE(Filled(block, step));
  for (auto& [step, block] : blocks) Drop(std::move(block));
  const SharedMemoryStats stats = Stats();
  EXPECT_EQ(stats.allocated_bytes, 0u);
  EXPECT_EQ(stats.condemned_bytes, 0u);
}

TEST_P(SharedMemoryConformance, RunningOutIsAStatusAndEndsWhenThereIsMemoryAgain) {
  harness_->RunOut(true);
  for (const uint64_t bytes : {uint64_t{100}, uint64_t{8} << 20}) {
    const absl::StatusOr<Block> block = Allocate(bytes);
    EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted) << block.status();
  }
  harness_->RunOut(false);
  EXPECT_TRUE(Allocate(100).ok());
  EXPECT_TRUE(Allocate(8 << 20).ok());
}

TEST_P(SharedMemoryConformance, TheLastReferenceCanBeDroppedOnAnyThread) {
  for (const uint64_t bytes : {uint64_t{1000}, uint64_t{2} << 20}) {
    absl::StatusOr<Block> block = Allocate(bytes);
    ASSERT_TRUE(block.ok());
    std::thread([block = *std::exchange(block, absl::UnknownError(""))]() mutable {
      block.reset();
    }).join();
    EXPECT_EQ(Stats().allocated_bytes, 0u);
  }
}

TEST_P(SharedMemoryConformance, TrimGivesWarmPagesBack) {
  absl::StatusOr<Block> block = Allocate(4 << 20);
  ASSERT_TRUE(block.ok());
  Drop(*std::exchange(block, absl::UnknownError("")));
  EXPECT_GE(Stats().pooled_bytes, uint64_t{4} << 20);
  harness_->Run([&] { harness_->memory().Trim(0); });
  EXPECT_EQ(Stats().pooled_bytes, 0u);
}

TEST_P(SharedMemoryConformance, BlocksOutliveTheMemory) {
  const absl::StatusOr<Block> small = Allocate(1000);
  const absl::StatusOr<Block> large = Allocate(2 << 20);
  ASSERT_TRUE(small.ok() && large.ok());
  Fill(*small, 1);
  Fill(*large, 2);
  harness_->DestroyMemory();
  EXPECT_TRUE(Filled(*small, 1));
  EXPECT_TRUE(Filled(*large, 2));
}

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_MEMORY_SHARED_MEMORY_CONFORMANCE_H_
