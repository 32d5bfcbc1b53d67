// Offsets and lengths beyond 32 bits: pulls that resume near the end of objects of more than 4 GiB,
// whose memory is sparse.
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/plane/data_plane.h"
#include "src/net/testing/tcp_plane.h"

namespace phalanx::net {
namespace {

using testing::Gen;
using testing::Id;
using testing::TcpPlane;

constexpr uint64_t kGiB = uint64_t{1} << 30;
// The bytes of each slice that remain to be pulled.
constexpr uint64_t kRest = 300'000;

std::shared_ptr<TransferBuffer> SparseBuffer(uint64_t size, int slices) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  std::shared_ptr<void> memory(data, [size](void* pages) { munmap(pages, size); });
  return std::make_shared<TransferBuffer>(
      SliceLayout{size, slices}, absl::MakeSpan(static_cast<char*>(data), size), std::move(memory));
}

// Returns the byte of a slice `back` bytes before its end.
char ByteAt(int slice, uint64_t back) { return static_cast<char>(back * 7 + back / 251 + slice); }

// The size and slices of an object, and if segments are checked.
using Case = std::tuple<uint64_t, int, bool>;

class DataPlaneLarge : public ::testing::TestWithParam<Case> {};

TEST_P(DataPlaneLarge, APullResumesBeyondWhat32BitsHold) {
  const auto [size, slices, checksums] = GetParam();
  const auto from = SparseBuffer(size, slices);
  const auto into = SparseBuffer(size, slices);
  ASSERT_TRUE(from != nullptr && into != nullptr);
  for (int slice = 0; slice < slices; ++slice) {
    const uint64_t bytes = from->layout().Size(slice);
    for (uint64_t back = 1; back <= kRest; ++back) {
      from->slice(slice)[bytes - back] = ByteAt(slice, back);
    }
    from->Publish(slice, bytes);
    into->Publish(slice, bytes - kRest);
  }
  from->Close(absl::OkStatus());

  DataPlaneOptions options;
  options.checksums = checksums;
  TcpPlane a(1);
  TcpPlane b(2, options);
  a.Put(Id(1), from);
  const PullOutcome outcome = b.Start(a, Id(1), into).outcome.get();
  PHALANX_ASSERT_OK(outcome.status);
  EXPECT_TRUE(into->complete());
  EXPECT_EQ(b.stats().bytes_received, kRest * static_cast<uint64_t>(slices));
  for (int slice = 0; slice < slices; ++slice) {
    const uint64_t bytes = into->layout().Size(slice);
    for (uint64_t back = 1; back <= kRest; ++back) {
      ASSERT_EQ(into->slice(slice)[bytes - back], ByteAt(slice, back)) << slice << " " << back;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DataPlaneLarge,
                         ::testing::Values(Case{4 * kGiB + 1, 1, false},
                                           Case{4 * kGiB + kRest / 2, 1, true},
                                           Case{5 * kGiB, 1, false}, Case{5 * kGiB + 3, 2, false},
                                           Case{64 * kGiB + 7, 3, true}));

}  // namespace
}  // namespace phalanx::net
