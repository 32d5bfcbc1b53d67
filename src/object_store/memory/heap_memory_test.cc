#include "src/object_store/memory/heap_memory.h"

#include "gtest/gtest.h"
#include "src/object_store/memory/shared_memory_conformance.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::object_store {
namespace {

class HeapHarness final : public SharedMemoryHarness {
 public:
  HeapHarness()
      : process_(scheduler_.NewProcess("node")),
        loop_(process_->NewExecutor("control")),
        memory_(std::make_unique<HeapMemory>(loop_)) {}

  void Run(std::function<void()> body) override {
    loop_.Post([&body] { body(); });
    scheduler_.RunFor(absl::ZeroDuration());
  }
  void RunUntil(std::function<bool()> done) override {
    scheduler_.RunUntil(done, absl::Seconds(1));
  }
  SharedMemory& memory() override { return *memory_; }
  void DestroyMemory() override {
    Run([this] { memory_.reset(); });
  }
  void RunOut(bool out) override { memory_->FailNext(out ? 1000 : 0); }

 private:
  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& loop_;
  std::unique_ptr<HeapMemory> memory_;
};

INSTANTIATE_TEST_SUITE_P(Heap, SharedMemoryConformance,
                         ::testing::Values(+[]() -> std::unique_ptr<SharedMemoryHarness> {
                           return std::make_unique<HeapHarness>();
                         }));

TEST(HeapMemoryTest, AReaderOfRecycledPagesSeesOtherBytes) {
  HeapHarness harness;
  std::shared_ptr<MemoryBlock> block;
  harness.Run([&] {
    harness.memory().Allocate(1000, [&](absl::StatusOr<std::shared_ptr<MemoryBlock>> result) {
      block = *std::move(result);
    });
  });
  const char* stale = block->bytes().data();
  std::memset(block->bytes().data(), 'x', 1000);
  harness.Run([&] { block.reset(); });
  EXPECT_NE(*stale, 'x');
}

}  // namespace
}  // namespace phalanx::object_store
