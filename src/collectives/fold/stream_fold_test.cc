#include "src/collectives/fold/stream_fold.h"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/collectives/kernels/kernels.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::collectives {
namespace {

using net::TransferBuffer;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;

// Element i of input s.
uint32_t Value(size_t s, uint64_t i) { return static_cast<uint32_t>((s + 1) * 1000003 + i * 7); }

uint32_t Sum(size_t inputs, uint64_t i) {
  uint32_t sum = 0;
  for (size_t s = 0; s < inputs; ++s) sum += Value(s, i);
  return sum;
}

struct Bytes {
  explicit Bytes(uint64_t size, int slices = 1)
      : memory(std::make_shared<std::vector<char>>(size)),
        buffer(std::make_shared<TransferBuffer>(SliceLayout{size, slices}, absl::MakeSpan(*memory),
                                                memory)) {}
  // Another buffer over the same bytes.
  std::shared_ptr<TransferBuffer> Again() const {
    return std::make_shared<TransferBuffer>(SliceLayout{memory->size(), 1}, absl::MakeSpan(*memory),
                                            memory);
  }
  uint32_t At(uint64_t i) const {
    uint32_t value;
    std::memcpy(&value, memory->data() + 4 * i, 4);
    return value;
  }
  std::shared_ptr<std::vector<char>> memory;
  std::shared_ptr<TransferBuffer> buffer;
};

// Writes input s as a pull does: [watermark, to) of the object, then published.
void Bring(TransferBuffer& buffer, size_t s, uint64_t to, uint64_t offset = 0) {
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    const uint64_t begin = buffer.layout().Begin(slice);
    const uint64_t end = std::min(to > begin ? to - begin : 0, buffer.layout().Size(slice));
    if (end <= buffer.watermark(slice)) continue;
    for (uint64_t at = buffer.watermark(slice); at < end; ++at) {
      const uint64_t byte = begin + at;
      const uint32_t value = byte < offset ? 0 : Value(s, (byte - offset) / 4);
      buffer.slice(slice)[at] = static_cast<char>(value >> (byte - offset) % 4 * 8);
    }
    buffer.Publish(slice, end);
  }
}

class StreamFoldTest : public ::testing::Test {
 protected:
  ~StreamFoldTest() override {
    fold_.reset();
    scheduler_.RunFor(absl::Seconds(1));
  }

  StreamFold::Spec SpecOf(std::vector<std::shared_ptr<TransferBuffer>> inputs,
                          std::shared_ptr<TransferBuffer> into) {
    StreamFold::Spec spec;
    spec.elements = DType::kU32;
    for (auto& input : inputs) spec.inputs.push_back({std::move(input), 0, true});
    spec.into = std::move(into);
    return spec;
  }
  void Start(StreamFold::Spec spec) {
    control_.Post([this, spec = std::move(spec)]() mutable {
      fold_ = std::make_unique<StreamFold>(
          std::move(spec), io_, control_,
          [this](const StreamFold::Outcome& outcome) { outcome_ = outcome; });
    });
    Run();
  }
  void OnControl(Task task) {
    control_.Post(std::move(task));
    Run();
  }
  void Run() { scheduler_.RunFor(absl::Milliseconds(1)); }
  void ExpectSums(const Bytes& out, size_t inputs, uint64_t elements) {
    for (uint64_t i = 0; i < elements; ++i) ASSERT_EQ(out.At(i), Sum(inputs, i)) << i;
  }

  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_ = scheduler_.NewProcess("p");
  sim::SimExecutor& control_ = process_->NewExecutor("control");
  sim::SimExecutor& io_ = process_->NewExecutor("io");
  std::unique_ptr<StreamFold> fold_;
  std::optional<StreamFold::Outcome> outcome_;
};

TEST_F(StreamFoldTest, FoldsUpToTheLeastWatermarkAndNoFurther) {
  Bytes a(4000), b(4000), c(4000), out(4000);
  Start(SpecOf({a.buffer, b.buffer, c.buffer}, out.buffer));
  Bring(*a.buffer, 0, 4000);
  Bring(*b.buffer, 1, 1001);
  Run();
  EXPECT_EQ(out.buffer->watermark(0), 0u);
  Bring(*c.buffer, 2, 2000);
  Run();
  EXPECT_EQ(out.buffer->watermark(0), 1000u) << "whole elements";
  EXPECT_FALSE(outcome_);
  Bring(*b.buffer, 1, 4000);
  Bring(*c.buffer, 2, 4000);
  Run();
  ASSERT_TRUE(outcome_);
  PHALANX_EXPECT_OK(outcome_->status);
  EXPECT_EQ(outcome_->folded, 4000u);
  ExpectSums(out, 3, 1000);
}

TEST_F(StreamFoldTest, OneInputIsCopied) {
  Bytes a(400), out(400);
  Bring(*a.buffer, 0, 400);
  Start(SpecOf({a.buffer}, out.buffer));
  ASSERT_TRUE(outcome_);
  ExpectSums(out, 1, 100);
}

TEST_F(StreamFoldTest, EmptyObjectsNeedNoFolding) {
  Bytes a(0), b(0), out(0);
  Start(SpecOf({a.buffer, b.buffer}, out.buffer));
  ASSERT_TRUE(outcome_);
  PHALANX_EXPECT_OK(outcome_->status);
}

TEST_F(StreamFoldTest, EitherOfTheFirstTwoMayLieInTheOutput) {
  for (const size_t in_place : {0, 1}) {
    for (const size_t inputs : {2, 3}) {
      outcome_.reset();
      Bytes out(8000);
      std::vector<Bytes> others(3, Bytes(8000));
      std::vector<std::shared_ptr<TransferBuffer>> buffers;
      for (size_t s = 0; s < inputs; ++s) {
        others[s] = Bytes(8000);
        buffers.push_back(s == in_place ? out.Again() : others[s].buffer);
      }
      Start(SpecOf(buffers, out.buffer));
      for (const uint64_t to : {13, 4000, 7999, 8000}) {
        for (size_t s = 0; s < inputs; ++s) Bring(*buffers[s], s, to);
        Run();
        EXPECT_EQ(out.buffer->watermark(0), to / 4 * 4);
      }
      ASSERT_TRUE(outcome_);
      ExpectSums(out, inputs, 2000);
    }
  }
}

TEST_F(StreamFoldTest, ARangeBeginsAnywhereAndCrossesSlices) {
  Bytes a(10001, 7), b(5000, 3), out(4000);
  StreamFold::Spec spec = SpecOf({a.buffer, b.buffer}, out.buffer);
  spec.inputs[0].offset = 4001;
  spec.inputs[1].offset = 3;
  Start(std::move(spec));
  for (uint64_t to = 0; to <= 10001; to += 613) {
    Bring(*a.buffer, 0, to, 4001);
    Bring(*b.buffer, 1, to, 3);
    Run();
    const uint64_t ready = to < 4001 ? 0 : std::min<uint64_t>((to - 4001) / 4 * 4, 4000);
    EXPECT_EQ(out.buffer->watermark(0), ready);
  }
  ASSERT_TRUE(outcome_) << "bytes behind the range are not waited for";
  ExpectSums(out, 2, 1000);
}

TEST_F(StreamFoldTest, TheEndIsHeldBackUntilItIsReleased) {
  Bytes a(4000), b(4000), out(4000);
  StreamFold::Spec spec = SpecOf({a.buffer, b.buffer}, out.buffer);
  spec.hold_back = 1000;
  Start(std::move(spec));
  Bring(*a.buffer, 0, 3600);
  Bring(*b.buffer, 1, 3600);
  Run();
  EXPECT_EQ(out.buffer->watermark(0), 3000u);
  EXPECT_EQ(fold_->folded(), 3600u);
  OnControl([this] { fold_->Release(); });
  EXPECT_EQ(out.buffer->watermark(0), 3600u);
  Bring(*a.buffer, 0, 4000);
  Bring(*b.buffer, 1, 4000);
  Run();
  EXPECT_EQ(out.buffer->watermark(0), 4000u);
  ASSERT_TRUE(outcome_);
}

TEST_F(StreamFoldTest, AllIsFoldedThoughTheEndIsHeldBack) {
  Bytes a(400), b(400), out(400);
  Bring(*a.buffer, 0, 400);
  Bring(*b.buffer, 1, 400);
  StreamFold::Spec spec = SpecOf({a.buffer, b.buffer}, out.buffer);
  spec.hold_back = 400;
  Start(std::move(spec));
  ASSERT_TRUE(outcome_);
  PHALANX_EXPECT_OK(outcome_->status);
  EXPECT_EQ(out.buffer->watermark(0), 0u);
  ExpectSums(out, 2, 100);
}

TEST_F(StreamFoldTest, AFoldEndsWithADeadInputAndAnotherContinuesThere) {
  Bytes a(4000), b(4000), dead(4000), out(4000);
  const auto in_place = out.Again();
  Start(SpecOf({in_place, dead.buffer}, out.buffer));
  Bring(*in_place, 0, 3000);
  Bring(*dead.buffer, 1, 2000);
  Run();
  dead.buffer->Close(absl::AbortedError("its writer died"));
  Run();
  ASSERT_TRUE(outcome_);
  EXPECT_THAT(outcome_->status, StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(outcome_->input, 1);
  EXPECT_EQ(outcome_->folded, 2000u);
  StreamFold::Spec rest = SpecOf({in_place, b.buffer}, out.buffer);
  rest.begin = outcome_->folded;
  outcome_.reset();
  Start(std::move(rest));
  Bring(*in_place, 0, 4000);
  Bring(*b.buffer, 1, 4000);
  Run();
  ASSERT_TRUE(outcome_);
  ExpectSums(out, 2, 1000);
}

TEST_F(StreamFoldTest, AnInputThatFailsAheadOfTheOthersEndsTheFoldAtOnce) {
  Bytes a(4000), b(4000), out(4000);
  Start(SpecOf({a.buffer, b.buffer}, out.buffer));
  Bring(*b.buffer, 1, 2000);
  Run();
  b.buffer->Close(absl::AbortedError("its writer died"));
  Run();
  ASSERT_TRUE(outcome_);
  EXPECT_EQ(outcome_->input, 1);
}

TEST_F(StreamFoldTest, AnInputThatEndsEarlyIsNoData) {
  Bytes a(4000), b(4000), out(4000);
  Start(SpecOf({a.buffer, b.buffer}, out.buffer));
  Bring(*a.buffer, 0, 2000);
  a.buffer->Close(absl::OkStatus());
  Run();
  ASSERT_TRUE(outcome_);
  EXPECT_THAT(outcome_->status, StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(StreamFoldTest, ACancelledFoldReleasesItsInputs) {
  Bytes a(4000), b(4000), out(4000);
  Start(SpecOf({a.buffer, b.buffer}, out.buffer));
  Bring(*a.buffer, 0, 4000);
  Bring(*b.buffer, 1, 2000);
  Run();
  OnControl([this] { fold_->Cancel(); });
  ASSERT_TRUE(outcome_);
  EXPECT_THAT(outcome_->status, StatusIs(absl::StatusCode::kCancelled));
  for (const Bytes& bytes : {a, b, out}) EXPECT_EQ(bytes.buffer.use_count(), 2) << "copy and own";
  Bring(*b.buffer, 1, 4000);
  Run();
  EXPECT_EQ(out.buffer->watermark(0), 2000u);
}

TEST_F(StreamFoldTest, ADestroyedFoldCallsNothing) {
  Bytes a(4000), out(4000);
  Start(SpecOf({a.buffer}, out.buffer));
  OnControl([this] { fold_.reset(); });
  Bring(*a.buffer, 0, 4000);
  Run();
  EXPECT_FALSE(outcome_);
  EXPECT_EQ(out.buffer.use_count(), 1);
}

TEST_F(StreamFoldTest, ALargeFoldTakesManyTurns) {
  const uint64_t size = uint64_t{16} << 20;
  Bytes a(size), b(size), out(size);
  Bring(*a.buffer, 0, size);
  Bring(*b.buffer, 1, size);
  control_.Post([&] {
    fold_ = std::make_unique<StreamFold>(
        SpecOf({a.buffer, b.buffer}, out.buffer), io_, control_,
        [this](const StreamFold::Outcome& outcome) { outcome_ = outcome; });
  });
  int turns = 0;
  uint64_t before = 0;
  while (!outcome_) {
    ASSERT_TRUE(scheduler_.Step());
    const uint64_t now = out.buffer->watermark(0);
    EXPECT_LE(now - before, uint64_t{2} << 20);
    turns += now > before ? 1 : 0;
    before = now;
  }
  EXPECT_GE(turns, 8);
  ExpectSums(out, 2, size / 4);
}

TEST_F(StreamFoldTest, MeansOfHalvesArePreparedAndFinished) {
  // 1.0, 2.0 and 6.0 in binary16; their mean is 3.0.
  const uint64_t count = 40000;
  std::vector<Bytes> inputs;
  for (const uint16_t value : {0x3c00, 0x4000, 0x4600}) {
    inputs.emplace_back(2 * count);
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(inputs.back().memory->data() + 2 * i, &value, 2);
    }
    inputs.back().buffer->Publish(0, 2 * count);
  }
  // The first two here, the third at the root, like two slots of a chain.
  Bytes partial(2 * count), out(2 * count);
  StreamFold::Spec below = SpecOf({inputs[0].buffer, inputs[1].buffer}, partial.buffer);
  below.elements = DType::kF16;
  below.op = ReduceOp::kMean;
  below.planned = 3;
  Start(std::move(below));
  StreamFold::Spec root = SpecOf({partial.buffer, inputs[2].buffer}, out.buffer);
  root.elements = DType::kF16;
  root.op = ReduceOp::kMean;
  root.planned = 3;
  root.finish_sources = 3;
  root.inputs[0].raw = false;
  outcome_.reset();
  Start(std::move(root));
  ASSERT_TRUE(outcome_);
  for (uint64_t i = 0; i < count; ++i) {
    uint16_t value;
    std::memcpy(&value, out.memory->data() + 2 * i, 2);
    ASSERT_EQ(value, 0x4200) << i;
  }
}

// The sum of elements of several types: i8 in [0, 192), u32 in [192, 4032), i16 in [4032, 4078).
const ElementTypes kMixed(DType::kU8,
                          {{192, DType::kI8}, {4032, DType::kU32}, {4078, DType::kI16}});

template <typename T>
void ExpectRun(const Bytes& out, const std::vector<Bytes>& inputs, uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end; at += sizeof(T)) {
    T sum = 0;
    for (const Bytes& input : inputs) {
      T value;
      std::memcpy(&value, input.memory->data() + at, sizeof(T));
      sum = static_cast<T>(sum + value);
    }
    T got;
    std::memcpy(&got, out.memory->data() + at, sizeof(T));
    ASSERT_EQ(got, sum) << at;
  }
}

TEST_F(StreamFoldTest, EachRunIsFoldedInItsType) {
  const uint64_t seed = phalanx::testing::TestSeed();
  Random random(seed);
  const uint64_t size = 4078;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", round ", round));
    std::vector<Bytes> inputs;
    for (int i = 0; i < 3; ++i) {
      // Carries show where elements begin and end.
      for (char& byte : *inputs.emplace_back(size).memory)
        byte = static_cast<char>(random.Below(256));
    }
    // One slice of the output at a time, like the members of a ring.
    const int slices = 1 + round % 5;
    Bytes out(size, slices);
    for (int slice = 0; slice < slices; ++slice) {
      const uint64_t begin = out.buffer->layout().Begin(slice);
      StreamFold::Spec spec;
      spec.elements = kMixed;
      for (const Bytes& input : inputs) spec.inputs.push_back({input.buffer, begin, true});
      spec.into = out.buffer;
      spec.into_slice = slice;
      outcome_.reset();
      Start(std::move(spec));
      while (!outcome_) {
        TransferBuffer& buffer = *inputs[random.Below(inputs.size())].buffer;
        const uint64_t there = buffer.watermark(0);
        if (there < size) buffer.Publish(0, std::min(size, there + 1 + random.Below(700)));
        Run();
      }
      PHALANX_ASSERT_OK(outcome_->status);
    }
    ExpectRun<int8_t>(out, inputs, 0, 192);
    ExpectRun<uint32_t>(out, inputs, 192, 4032);
    ExpectRun<int16_t>(out, inputs, 4032, 4078);
  }
}

TEST_F(StreamFoldTest, RunsOfHalvesArePreparedAndOthersAreNot) {
  const uint64_t size = 128 + 8;
  std::vector<Bytes> inputs;
  for (const uint16_t half : {0x3c00, 0x4000, 0x4600}) {  // 1, 2 and 6 in binary16
    Bytes& input = inputs.emplace_back(size);
    for (uint64_t at = 0; at < 128; at += 2) std::memcpy(input.memory->data() + at, &half, 2);
    const double value = half == 0x3c00 ? 0.5 : 1.25;
    std::memcpy(input.memory->data() + 128, &value, 8);
    input.buffer->Publish(0, size);
  }
  Bytes out(size);
  StreamFold::Spec spec =
      SpecOf({inputs[0].buffer, inputs[1].buffer, inputs[2].buffer}, out.buffer);
  spec.elements = ElementTypes(DType::kU8, {{128, DType::kF16}, {136, DType::kF64}});
  spec.op = ReduceOp::kMean;
  spec.planned = 3;
  spec.finish_sources = 3;
  Start(std::move(spec));
  ASSERT_TRUE(outcome_);
  uint16_t half;
  std::memcpy(&half, out.memory->data() + 126, 2);
  EXPECT_EQ(half, 0x4200) << "3.0";
  double value;
  std::memcpy(&value, out.memory->data() + 128, 8);
  EXPECT_EQ(value, 1.0);
}

TEST_F(StreamFoldTest, AnyPacesAndSizesGiveTheSameSums) {
  const uint64_t seed = phalanx::testing::TestSeed();
  Random random(seed);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", round ", round));
    const uint64_t elements = random.Below(60000);
    const size_t inputs = 1 + random.Below(6);
    Bytes out(4 * elements);
    const size_t in_place = random.Below(4);
    std::vector<std::shared_ptr<TransferBuffer>> buffers;
    for (size_t s = 0; s < inputs; ++s) {
      const bool here = s == in_place && s < 2;
      const int slices = 1 + static_cast<int>(random.Below(here ? 1 : 5));
      buffers.push_back(here ? out.Again() : Bytes(4 * elements, slices).buffer);
    }
    outcome_.reset();
    Start(SpecOf(buffers, out.buffer));
    std::vector<uint64_t> there(inputs);
    while (!outcome_) {
      const size_t s = random.Below(inputs);
      there[s] = std::min(4 * elements, there[s] + random.Below(1 + random.Below(100000)));
      Bring(*buffers[s], s, there[s]);
      Run();
    }
    PHALANX_ASSERT_OK(outcome_->status);
    EXPECT_EQ(out.buffer->watermark(0), 4 * elements);
    ExpectSums(out, inputs, elements);
  }
}

}  // namespace
}  // namespace phalanx::collectives
