// Folds with inputs that other threads write: checks the sums, and is run under ThreadSanitizer.
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/collectives/fold/stream_fold.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::collectives {
namespace {

using net::EventLoop;
using net::TransferBuffer;

constexpr uint64_t kElements = 500'000;
constexpr uint64_t kBytes = 4 * kElements;

// A count that a test waits for.
class Count {
 public:
  void Add() {
    const std::lock_guard<std::mutex> lock(mu_);
    ++count_;
    changed_.notify_all();
  }
  void Await(int count) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  int count_ = 0;
};

std::shared_ptr<TransferBuffer> BufferOver(const std::shared_ptr<std::vector<char>>& memory) {
  return std::make_shared<TransferBuffer>(SliceLayout{memory->size(), 1}, absl::MakeSpan(*memory),
                                          memory);
}

// Writes value `s + i` at element i, a piece in each turn of the loop.
void Bring(EventLoop& loop, std::shared_ptr<TransferBuffer> buffer, uint32_t s, uint64_t piece) {
  loop.Post([&loop, buffer = std::move(buffer), s, piece] {
    const uint64_t from = buffer->watermark(0);
    const uint64_t to = std::min(from + piece, kBytes);
    for (uint64_t at = from; at < to; ++at) {
      const uint32_t value = s + static_cast<uint32_t>(at / 4);
      buffer->slice(0)[at] = static_cast<char>(value >> at % 4 * 8);
    }
    buffer->Publish(0, to);
    if (to < kBytes) Bring(loop, buffer, s, piece);
  });
}

class StreamFoldThreadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (EventLoop* loop : {&control_, &fold_loop_, &left_, &right_}) {
      ASSERT_TRUE(loop->Start("loop").ok());
    }
  }
  void OnControl(std::function<void()> task) {
    const auto ran = std::make_shared<Count>();
    control_.Post([&task, ran] {
      task();
      ran->Add();
    });
    ran->Await(1);
  }

  EventLoop control_, fold_loop_, left_, right_;
};

TEST_F(StreamFoldThreadTest, AChainFoldsInPlaceWhileBytesComeAndGo) {
  // The first fold's output is the second's input; both lie over memory that another thread writes.
  std::vector<std::shared_ptr<std::vector<char>>> memory;
  for (int i = 0; i < 4; ++i) memory.push_back(std::make_shared<std::vector<char>>(kBytes));
  const auto first_in = BufferOver(memory[0]);
  const auto first_out = BufferOver(memory[0]);
  const auto first_own = BufferOver(memory[1]);
  const auto second_own = BufferOver(memory[2]);
  const auto second_out = BufferOver(memory[3]);
  Count done;
  std::unique_ptr<StreamFold> first, second;
  OnControl([&] {
    StreamFold::Spec spec;
    spec.elements = DType::kU32;
    spec.inputs = {{first_in}, {first_own}};
    spec.into = first_out;
    first = std::make_unique<StreamFold>(spec, fold_loop_, control_, [&](const auto& outcome) {
      EXPECT_TRUE(outcome.status.ok());
      done.Add();
    });
    spec.inputs = {{first_out}, {second_own}};
    spec.into = second_out;
    spec.hold_back = 1000;
    second = std::make_unique<StreamFold>(spec, left_, control_, [&](const auto& outcome) {
      EXPECT_TRUE(outcome.status.ok());
      done.Add();
    });
  });
  Bring(left_, first_in, 1, 7777);
  Bring(right_, first_own, 2, 30001);
  Bring(right_, second_own, 3, 123457);
  OnControl([&] { second->Release(); });
  done.Await(2);
  OnControl([&] {
    first.reset();
    second.reset();
  });
  EXPECT_EQ(second_out->watermark(0), kBytes);
  for (uint64_t i = 0; i < kElements; ++i) {
    uint32_t value;
    std::memcpy(&value, memory[3]->data() + 4 * i, 4);
    ASSERT_EQ(value, 6 + 3 * static_cast<uint32_t>(i)) << i;
  }
}

TEST_F(StreamFoldThreadTest, MayBeCancelledAndDestroyedAtAnyTime) {
  for (int round = 0; round < 40; ++round) {
    const auto in = std::make_shared<std::vector<char>>(kBytes);
    const auto out = std::make_shared<std::vector<char>>(kBytes);
    const auto source = BufferOver(in);
    const auto into = BufferOver(out);
    Count ended;
    std::unique_ptr<StreamFold> fold;
    OnControl([&] {
      StreamFold::Spec spec;
      spec.elements = DType::kU32;
      spec.inputs = {{source}, {source}};
      spec.into = into;
      fold = std::make_unique<StreamFold>(spec, fold_loop_, control_,
                                          [&](const auto&) { ended.Add(); });
    });
    Bring(right_, source, 1, 10007);
    for (int turn = 0; turn < round; ++turn) OnControl([] {});
    OnControl([&] {
      if (round % 2 == 0) fold->Cancel();
      if (round % 2 == 1) fold.reset();
    });
    if (round % 2 == 0) ended.Await(1);
    OnControl([&] { fold.reset(); });
  }
}

}  // namespace
}  // namespace phalanx::collectives
