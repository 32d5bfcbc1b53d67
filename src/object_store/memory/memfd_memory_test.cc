#include "src/object_store/memory/memfd_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/loop/event_loop.h"
#include "src/object_store/memory/shared_memory_conformance.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

class MemfdHarness final : public SharedMemoryHarness {
 public:
  explicit MemfdHarness(MemfdMemoryOptions options = {}) {
    options.first_segment_bytes = std::min<uint64_t>(options.first_segment_bytes, 1 << 20);
    options.available = [this] {
      return out_.load() || refusals_.fetch_sub(1) > 0 ? uint64_t{0} : UINT64_MAX;
    };
    PHALANX_EXPECT_OK(loop_.Start("memory"));
    Run([&] { memory_ = std::make_unique<MemfdMemory>(loop_, options); });
  }
  ~MemfdHarness() override {
    DestroyMemory();
    loop_.Stop();
  }

  void Run(std::function<void()> body) override {
    std::promise<void> finished;
    loop_.Post([&] {
      body();
      loop_.Post([&] { finished.set_value(); });
    });
    finished.get_future().wait();
  }
  void RunUntil(std::function<bool()> done) override {
    bool is_done = false;
    while (!is_done) Run([&] { is_done = done(); });
  }
  SharedMemory& memory() override { return *memory_; }
  void DestroyMemory() override {
    Run([this] { memory_.reset(); });
  }
  void RunOut(bool out) override { out_ = out; }
  void Post(std::function<void()> body) { loop_.Post(std::move(body)); }
  // On the loop.
  void EndMemory() { memory_.reset(); }
  // The machine has nothing left for the next `times` requests.
  void Refuse(int times) { refusals_ = times; }

  absl::StatusOr<std::shared_ptr<MemoryBlock>> Allocate(uint64_t bytes) {
    std::promise<absl::StatusOr<std::shared_ptr<MemoryBlock>>> result;
    loop_.Post([&] {
      memory_->Allocate(bytes, [&](absl::StatusOr<std::shared_ptr<MemoryBlock>> block) {
        result.set_value(OwnStatus(std::move(block)));
      });
    });
    return result.get_future().get();
  }
  void Drop(std::shared_ptr<MemoryBlock>& block) {
    Run([&] { block.reset(); });
  }
  SharedMemoryStats Stats() {
    SharedMemoryStats stats;
    Run([&] { stats = memory_->stats(); });
    return stats;
  }

 private:
  std::atomic<bool> out_{false};
  std::atomic<int64_t> refusals_{0};
  net::EventLoop loop_;
  std::unique_ptr<MemfdMemory> memory_;
};

INSTANTIATE_TEST_SUITE_P(Memfd, SharedMemoryConformance,
                         ::testing::Values(+[]() -> std::unique_ptr<SharedMemoryHarness> {
                           return std::make_unique<MemfdHarness>();
                         }));

// What a client has: the file mapped read-only, by a descriptor that is closed then.
class Mapping {
 public:
  explicit Mapping(MemoryBlock& block, ViewerId viewer = 1) : bytes_(block.file_bytes()) {
    const int fd = block.OpenFor(viewer);
    data_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    object_ = static_cast<const char*>(data_) + block.offset();
    close(fd);
  }
  ~Mapping() {
    if (ok()) munmap(data_, bytes_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  const char* object() const { return object_; }

 private:
  const uint64_t bytes_;
  void* data_;
  const char* object_;
};

size_t OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(MemfdMemory, PagesOfATrimmedFileGoBackAlthoughAClientHasItMapped) {
  MemfdHarness harness;
  auto block = harness.Allocate(8 << 20);
  ASSERT_THAT(block, IsOk());
  const int client = dup((*block)->read_only_fd());
  const Mapping mapping(**block);
  struct stat file {};
  ASSERT_EQ(fstat(client, &file), 0);
  EXPECT_EQ(file.st_blocks * 512, 8 << 20);
  harness.Drop(*block);
  harness.Run([&] { harness.memory().Trim(0); });
  // The helper makes the next file after it has given up the last.
  ASSERT_THAT(harness.Allocate(1 << 20), IsOk());
  ASSERT_EQ(fstat(client, &file), 0);
  EXPECT_EQ(file.st_blocks, 0);
  close(client);
}

constexpr uint64_t kSmall = 1000;
constexpr uint64_t kSmallExtent = 1024;
constexpr uint64_t kLarge = uint64_t{3} << 20;

TEST(MemfdMemoryTest, AnotherProcessSeesTheBytesAndLaterOnesToo) {
  MemfdHarness harness;
  for (const uint64_t bytes : {kSmall, kLarge}) {
    const auto block = *harness.Allocate(bytes);
    const int fd = block->read_only_fd();
    std::memset(block->bytes().data(), 'a', bytes);
    int to_child[2];
    ASSERT_EQ(pipe(to_child), 0);
    const pid_t child = fork();
    if (child == 0) {
      const Mapping mapping(*block);
      char go = 0;
      const bool first = mapping.ok() && mapping.object()[bytes - 1] == 'a';
      const bool released = read(to_child[0], &go, 1) == 1;
      _exit(first && released && mapping.object()[0] == 'b' ? 0 : 1);
    }
    block->bytes()[0] = 'b';
    ASSERT_EQ(write(to_child[1], "!", 1), 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(to_child[0]);
    close(to_child[1]);
    EXPECT_EQ(fd, block->read_only_fd());
  }
}

TEST(MemfdMemoryTest, TheReadOnlyDescriptorCannotBeMappedWritableNorWritten) {
  MemfdHarness harness;
  for (const uint64_t bytes : {kSmall, kLarge}) {
    const auto block = *harness.Allocate(bytes);
    const int fd = block->read_only_fd();
    ASSERT_GE(fd, 0);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
    void* readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(readable, MAP_FAILED);
    EXPECT_NE(mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
    munmap(readable, 4096);
    EXPECT_NE(ftruncate(fd, 0), 0);
  }
}

TEST(MemfdMemoryTest, OnlyFilesOfTheirOwnAreGivenToWriters) {
  MemfdHarness harness;
  const auto small = *harness.Allocate(kSmall);
  EXPECT_EQ(small->writable_fd(), -1);
  const auto large = *harness.Allocate(kLarge);
  void* mapping =
      mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_SHARED, large->writable_fd(), 0);
  ASSERT_NE(mapping, MAP_FAILED);
  static_cast<char*>(mapping)[77] = 'w';
  EXPECT_EQ(large->bytes()[77], 'w');
  munmap(mapping, kLarge);
  EXPECT_NE(ftruncate(large->writable_fd(), 0), 0) << "the size is sealed";
}

TEST(MemfdMemoryTest, AWarmFileIsTakenAgainForSizesThatFit) {
  MemfdHarness harness;
  auto block = *harness.Allocate(uint64_t{5} << 20);
  const uint64_t file = block->file_id();
  harness.Drop(block);
  auto too_small = *harness.Allocate(uint64_t{3} << 20);
  EXPECT_NE(too_small->file_id(), file);
  auto fits = *harness.Allocate(uint64_t{4} << 20);
  EXPECT_EQ(fits->file_id(), file);
  EXPECT_EQ(fits->bytes().size(), uint64_t{4} << 20);
}

TEST(MemfdMemoryTest, NoRecycledPageShowsThroughAViewThatLives) {
  MemfdHarness harness;
  for (const uint64_t bytes : {kSmall, kLarge}) {
    auto block = *harness.Allocate(bytes);
    std::memset(block->bytes().data(), 'v', bytes);
    const Mapping view(*block);
    ASSERT_TRUE(view.ok());
    harness.Run([&] { block->Condemn(1); });
    harness.Drop(block);
    // Everything that could be the same pages is written over.
    std::vector<std::shared_ptr<MemoryBlock>> others;
    for (int i = 0; i < 50; ++i) {
      others.push_back(*harness.Allocate(bytes));
      std::memset(others.back()->bytes().data(), 'o', bytes);
    }
    EXPECT_EQ(std::string(view.object(), bytes), std::string(bytes, 'v'));
    for (auto& other : others) harness.Drop(other);
    EXPECT_EQ(std::string(view.object(), bytes), std::string(bytes, 'v'));
  }
  EXPECT_EQ(harness.Stats().condemned_bytes, 0u);
}

TEST(MemfdMemoryTest, ReleasedPagesAreRecycledSoThatAViewWouldShowIt) {
  // The counterpart: without Condemn the pages are taken again.
  MemfdHarness harness;
  auto block = *harness.Allocate(kLarge);
  std::memset(block->bytes().data(), 'v', kLarge);
  const Mapping view(*block);
  harness.Drop(block);
  const auto other = *harness.Allocate(kLarge);
  other->bytes()[0] = 'o';
  EXPECT_EQ(view.object()[0], 'o');
}

TEST(MemfdMemoryTest, ManySmallObjectsNeedFewDescriptors) {
  MemfdHarness harness;
  constexpr uint64_t kObject = 100 * 1000;
  constexpr int kObjects = 2000;
  const size_t before = OpenDescriptors();
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  for (int i = 0; i < kObjects; ++i) blocks.push_back(*harness.Allocate(kObject));
  for (const auto& block : blocks) ASSERT_GE(block->read_only_fd(), 0);
  // Segments double up to 64 MiB: 200 MB in 1 + 2 + ... + 64 + 64 + 64 MiB. Beyond, one per 64 MiB:
  // 100,000 such objects have some 170 descriptors.
  EXPECT_LE(OpenDescriptors() - before, 10u);
  EXPECT_LE(harness.Stats().files, 10u);
  for (auto& block : blocks) harness.Drop(block);
  // A spare one stays.
  EXPECT_LE(harness.Stats().files, 2u);
}

TEST(MemfdMemoryTest, ACondemnedExtentWaitsUntilItsViewerMapsTheSegmentNoMore) {
  MemfdHarness harness;
  auto seen = *harness.Allocate(kSmall);
  auto other = *harness.Allocate(kSmall);
  ASSERT_EQ(other->file_id(), seen->file_id());
  const char* const place = seen->bytes().data();
  auto view = std::make_unique<Mapping>(*seen);
  const Mapping of_another_viewer(*other, 2);
  ASSERT_TRUE(view->ok() && of_another_viewer.ok());
  harness.Run([&] { seen->Condemn(1); });
  harness.Drop(seen);
  harness.Run([&] { harness.memory().Reconsider(); });
  EXPECT_EQ(harness.Stats().condemned_bytes, kSmallExtent);
  auto next = *harness.Allocate(kSmall);
  EXPECT_NE(next->bytes().data(), place);
  harness.Drop(next);
  view.reset();
  harness.Run([&] { harness.memory().Reconsider(); });
  EXPECT_EQ(harness.Stats().condemned_bytes, 0u);
  EXPECT_EQ((*harness.Allocate(kSmall))->bytes().data(), place);
}

TEST(MemfdMemoryTest, ACondemnedExtentWaitsForTheChildrenOfItsViewer) {
  MemfdHarness harness;
  auto seen = *harness.Allocate(kSmall);
  auto other = *harness.Allocate(kSmall);
  auto view = std::make_unique<Mapping>(*seen);
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char byte;
    _exit(static_cast<int>(read(hold[0], &byte, 1)));
  }
  close(hold[0]);
  view.reset();
  harness.Run([&] { seen->Condemn(1); });
  harness.Drop(seen);
  EXPECT_EQ(harness.Stats().condemned_bytes, kSmallExtent) << "the child has it mapped";
  close(hold[1]);
  waitpid(child, nullptr, 0);
  harness.Run([&] { harness.memory().Reconsider(); });
  EXPECT_EQ(harness.Stats().condemned_bytes, 0u);
}

TEST(MemfdMemoryTest, UnmappedCondemnedExtentsAreReusedBeforeNewMemoryIsMade) {
  MemfdHarness harness;
  auto first = *harness.Allocate(kSmall);
  auto keeps_the_segment = *harness.Allocate(kSmall);
  const char* const place = first->bytes().data();
  auto view = std::make_unique<Mapping>(*first);
  harness.Run([&] { first->Condemn(1); });
  harness.Drop(first);
  view.reset();
  // The memory was not notified that the viewer has ended.
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  bool found = false;
  while (!found && blocks.size() < 1000) {
    blocks.push_back(*harness.Allocate(kSmall));
    found = blocks.back()->bytes().data() == place;
  }
  EXPECT_TRUE(found);
  for (auto& block : blocks) harness.Drop(block);
}

TEST(MemfdMemoryTest, ABlockCondemnedForAViewerThatIsGoneIsReused) {
  MemfdHarness harness;
  auto block = *harness.Allocate(kSmall);
  const char* const place = block->bytes().data();
  {
    const Mapping view(*block);
    harness.Run([&] { block->Condemn(1); });
  }
  harness.Drop(block);
  EXPECT_EQ(harness.Stats().condemned_bytes, 0u);
  EXPECT_EQ((*harness.Allocate(kSmall))->bytes().data(), place);
}

TEST(MemfdMemoryTest, ASegmentWithAnExtentThatMayBeSeenIsClosedWhenTheRestIsFree) {
  MemfdHarness harness;
  auto seen = *harness.Allocate(kSmall);
  auto rest = *harness.Allocate(kSmall);
  const uint64_t file = seen->file_id();
  ASSERT_EQ(rest->file_id(), file);
  const Mapping view(*seen, 1);
  harness.Run([&] { seen->Condemn(1); });
  harness.Drop(seen);
  EXPECT_EQ((*harness.Allocate(kSmall))->file_id(), file) << "the rest of it is still of use";
  harness.Drop(rest);
  EXPECT_NE((*harness.Allocate(kSmall))->file_id(), file);
}

TEST(MemfdMemoryTest, ThePoolGivesWayToBlocks) {
  MemfdMemoryOptions options;
  options.max_bytes = uint64_t{16} << 20;
  MemfdHarness harness(options);
  auto a = *harness.Allocate(uint64_t{6} << 20);
  auto b = *harness.Allocate(uint64_t{6} << 20);
  harness.Drop(a);
  EXPECT_GE(harness.Stats().pooled_bytes, uint64_t{6} << 20);
  // 6 live, 6 warm, 9 asked for: the warm ones go.
  const auto c = *harness.Allocate(uint64_t{9} << 20);
  EXPECT_LT(harness.Stats().pooled_bytes, uint64_t{6} << 20);
}

TEST(MemfdMemoryTest, SegmentsAndWarmFilesTogetherStayWithinTheCapacity) {
  MemfdMemoryOptions options;
  options.max_bytes = uint64_t{16} << 20;
  MemfdHarness harness(options);
  auto large = *harness.Allocate(uint64_t{8} << 20);
  harness.Drop(large);
  std::vector<std::shared_ptr<MemoryBlock>> small;
  for (uint64_t bytes = 0; bytes < uint64_t{15} << 20; bytes += 60000) {
    small.push_back(*harness.Allocate(60000));
    const SharedMemoryStats stats = harness.Stats();
    ASSERT_LE(stats.allocated_bytes + stats.pooled_bytes, options.max_bytes) << small.size();
  }
}

TEST(MemfdMemoryTest, WarmFilesGiveWayToASegmentThatTheMachineHasNoMemoryFor) {
  MemfdHarness harness;
  auto large = *harness.Allocate(kLarge);
  harness.Drop(large);
  harness.Refuse(1);
  const auto small = harness.Allocate(kSmall);
  EXPECT_THAT(small, IsOk());
  EXPECT_EQ(harness.Stats().files, 1u) << "the warm file went";
  harness.Refuse(2);
  EXPECT_THAT(harness.Allocate(kOwnFileBytes - 1), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(harness.Allocate(kOwnFileBytes - 1), IsOk());
}

uint64_t PagesOf(const MemoryBlock& block) {
  struct stat file {};
  EXPECT_EQ(fstat(block.read_only_fd(), &file), 0);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

TEST(MemfdMemoryTest, TheBytesOfABlockInASegmentHavePagesAndTheRestOfTheSegmentGetsThemLater) {
  MemfdHarness harness;
  std::map<uint64_t, uint64_t> used;
  bool some_later = false;
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  while (blocks.empty() || blocks.back()->file_bytes() < uint64_t{32} << 20) {
    blocks.push_back(*harness.Allocate(1'000'000));
    const MemoryBlock& block = *blocks.back();
    used[block.file_id()] = std::max(used[block.file_id()], block.offset() + 1'000'000);
    ASSERT_GE(PagesOf(block), used[block.file_id()]) << blocks.size();
    some_later = some_later || PagesOf(block) < block.file_bytes();
  }
  EXPECT_TRUE(some_later) << "each segment had all its pages at once";
}

TEST(MemfdMemoryTest, ASegmentThatTheMachineHasNoPagesForGrowsWhenThereAreSomeAgain) {
  MemfdHarness harness;
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  while (blocks.empty() || blocks.back()->file_bytes() < uint64_t{8} << 20) {
    blocks.push_back(*harness.Allocate(500'000));
  }
  harness.RunOut(true);
  absl::Status status;
  while (status.ok() && blocks.size() < 1000) {
    auto block = harness.Allocate(500'000);
    if (block.ok()) blocks.push_back(*block);
    status = block.status();
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--capacity")));
  const uint64_t segment = blocks.back()->file_id();
  EXPECT_LT(PagesOf(*blocks.back()), blocks.back()->file_bytes());
  harness.RunOut(false);
  auto next = harness.Allocate(500'000);
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ((*next)->file_id(), segment);
}

TEST(MemfdMemoryTest, ASegmentThatIsGivenUpWhileItGrowsIsReplaced) {
  MemfdHarness harness;
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  while (blocks.empty() || PagesOf(*blocks.back()) == blocks.back()->file_bytes()) {
    blocks.push_back(*harness.Allocate(1'000'000));
  }
  // The helper makes its next pages while all of it becomes free.
  harness.Run([&] {
    harness.memory().Allocate(1'000'000, [](absl::StatusOr<std::shared_ptr<MemoryBlock>>) {});
    blocks.clear();
    harness.memory().Trim(0);
  });
  const auto block = harness.Allocate(1'000'000);
  ASSERT_THAT(block, IsOk());
  EXPECT_GE(PagesOf(**block), (*block)->offset() + 1'000'000);
}

TEST(MemfdMemoryTest, PagesThatAreMadeWhileTheMemoryEndsAreDropped) {
  MemfdHarness harness;
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  while (blocks.empty() || blocks.back()->file_bytes() < uint64_t{16} << 20) {
    blocks.push_back(*harness.Allocate(1'000'000));
  }
  const MemoryBlock& last = *blocks.back();
  std::atomic<bool> growing{false};
  harness.Post([&] {
    const uint64_t before = PagesOf(last);
    // More than a step, so the segment runs low.
    for (int i = 0; i < 3; ++i) {
      harness.memory().Allocate(1'000'000, [](absl::StatusOr<std::shared_ptr<MemoryBlock>>) {});
    }
    growing = true;
    // The end of the memory is posted meanwhile, before the helper posts that it has made pages. It
    // makes none if its last result waits behind this task.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (PagesOf(last) == before && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
  });
  while (!growing) std::this_thread::yield();
  harness.DestroyMemory();
  harness.Run([] {});
}

TEST(MemfdMemoryTest, BlocksThatAnotherThreadReturnsWhileTheMemoryEndsAreDropped) {
  MemfdHarness harness;
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  for (const uint64_t bytes : {uint64_t{1000}, kOwnFileBytes}) {
    blocks.push_back(*harness.Allocate(bytes));
  }
  harness.Run([&] {
    // What the thread posts runs after this task, and so after the end of the memory.
    std::thread([&] { blocks.clear(); }).join();
    harness.EndMemory();
  });
  harness.Run([] {});
}

TEST(MemfdMemoryTest, ARequestBeyondTheMachineNamesItsSize) {
  MemfdHarness harness;
  harness.RunOut(true);
  EXPECT_THAT(harness.Allocate(kLarge),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("3145728")));
  harness.RunOut(false);
  EXPECT_THAT(harness.Allocate(UINT64_MAX), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(MemfdMemoryTest, SmallBlocksAreRefusedWhenTheirRecordsWouldHaveNoMemory) {
  MemfdHarness harness;
  std::vector<std::shared_ptr<MemoryBlock>> blocks;
  const auto allocate = [&] {
    auto block = harness.Allocate(100);
    if (block.ok()) blocks.push_back(*block);
    return block.status();
  };
  PHALANX_ASSERT_OK(allocate());
  harness.RunOut(true);
  absl::Status status;
  while (status.ok() && blocks.size() < 2000) status = allocate();
  // Its segment has room for them all.
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--capacity")));
  EXPECT_LT(blocks.size(), 1100);
  harness.RunOut(false);
  PHALANX_EXPECT_OK(allocate());
}

TEST(MemfdMemoryTest, ARequestThatIsUnderWayIsDroppedWhenTheMemoryEnds) {
  MemfdHarness harness;
  bool called = false;
  harness.Run([&] {
    harness.memory().Allocate(uint64_t{64} << 20,
                              [&](absl::StatusOr<std::shared_ptr<MemoryBlock>>) { called = true; });
  });
  harness.DestroyMemory();
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace phalanx::object_store
