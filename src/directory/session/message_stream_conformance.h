// The tests that every implementation of MessageStream passes, for both ends. Testonly.
//
// An implementation includes this header in one test and instantiates the suite:
//   INSTANTIATE_TEST_SUITE_P(Grpc, MessageStreamConformance, ::testing::Values(&MakeHarness));
#ifndef PHALANX_DIRECTORY_SESSION_MESSAGE_STREAM_CONFORMANCE_H_
#define PHALANX_DIRECTORY_SESSION_MESSAGE_STREAM_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/session/message_stream.h"
#include "src/directory/session/session_link.h"

namespace phalanx::directory {

// A listener, a way to reach it, and one executor for both ends.
class MessageStreamHarness {
 public:
  using Accept = std::function<void(std::unique_ptr<ShardStream>)>;

  virtual ~MessageStreamHarness() = default;
  virtual Executor& executor() = 0;
  // Runs `body` as a task of the executor, and the executor until `done` is called.
  virtual void Run(std::function<void(std::function<void()> done)> body) = 0;
  // Sets the receiver of accepted streams, on the executor. Called once, before the first Connect.
  virtual void OnAccept(Accept accept) = 0;
  // On the executor.
  virtual std::unique_ptr<NodeStream> Connect() = 0;
  // Connects to an address without a listener.
  virtual std::unique_ptr<NodeStream> ConnectToClosedAddress() = 0;
};

using MakeMessageStreamHarness = std::unique_ptr<MessageStreamHarness> (*)();

class MessageStreamConformance : public ::testing::TestWithParam<MakeMessageStreamHarness> {
 protected:
  using Done = std::function<void()>;

  // One end: its stream and what it received.
  template <typename Stream, typename In>
  struct End {
    // Installs handlers that record each call and then call the test's own function.
    void Start() {
      stream->Start({.on_message =
                         [this](In frame) {
                           EXPECT_FALSE(inside_call);
                           EXPECT_FALSE(quiet);
                           received.push_back(std::move(frame));
                           if (on_message) on_message();
                         },
                     .on_writable =
                         [this] {
                           EXPECT_FALSE(inside_call);
                           EXPECT_FALSE(quiet);
                           if (on_writable) on_writable();
                         },
                     .on_closed =
                         [this](absl::Status why) {
                           EXPECT_FALSE(inside_call);
                           EXPECT_FALSE(quiet);
                           closed.push_back(std::move(why));
                           if (on_closed) on_closed();
                         }});
    }
    template <typename Frame>
    void Send(Frame frame) {
      inside_call = true;
      stream->Send(std::move(frame));
      inside_call = false;
    }
    // Sends the frames numbered from `next` to `end`, as the stream takes them.
    void SendUpTo(uint64_t end, std::function<void(uint64_t)> send) {
      on_writable = [this, end, send] {
        while (next < end && stream->writable()) send(next++);
      };
      on_writable();
    }
    void Close(const absl::Status& why) {
      quiet = true;
      inside_call = true;
      stream->Close(why);
      inside_call = false;
    }

    std::unique_ptr<Stream> stream;
    std::vector<In> received;
    std::vector<absl::Status> closed;
    std::function<void()> on_message, on_writable, on_closed;
    uint64_t next = 0;
    bool inside_call = false;
    bool quiet = false;  // no callback is allowed after this
  };

  void TearDown() override {
    harness_->Run([this](Done done) {
      node_.stream.reset();
      shard_.stream.reset();
      done();
    });
  }

  // Connects; `then` runs on the executor when both ends have started.
  void WithStreams(std::function<void(Done)> then) {
    harness_->Run([this, then](Done done) {
      harness_->OnAccept([this, then, done](std::unique_ptr<ShardStream> stream) {
        shard_.stream = std::move(stream);
        shard_.Start();
        then(done);
      });
      node_.stream = harness_->Connect();
      node_.Start();
    });
  }

  static v1::NodeFrame NodeFrame(uint64_t number, size_t padding = 0) {
    v1::NodeFrame frame;
    frame.mutable_hello()->set_session_id(number);
    frame.mutable_hello()->set_nonce(std::string(padding, 'x'));
    return frame;
  }
  static v1::ShardFrame ShardFrame(uint64_t number, size_t padding = 0) {
    v1::ShardFrame frame;
    frame.mutable_welcome()->set_session_id(number);
    if (padding > 0) frame.mutable_refused()->set_message(std::string(padding, 'x'));
    return frame;
  }
  void NodeSends(uint64_t end) {
    node_.SendUpTo(end, [this](uint64_t number) { node_.Send(NodeFrame(number)); });
  }
  void ShardSends(uint64_t end) {
    shard_.SendUpTo(end, [this](uint64_t number) { shard_.Send(ShardFrame(number)); });
  }

  const std::unique_ptr<MessageStreamHarness> harness_ = GetParam()();
  End<NodeStream, v1::ShardFrame> node_;
  End<ShardStream, v1::NodeFrame> shard_;
};

TEST_P(MessageStreamConformance, FramesArriveInOrderBothWays) {
  constexpr uint64_t kFrames = 500;
  WithStreams([this](Done done) {
    const auto look = [this, done] {
      if (node_.received.size() == kFrames && shard_.received.size() == kFrames) done();
    };
    node_.on_message = shard_.on_message = look;
    NodeSends(kFrames);
    ShardSends(kFrames);
  });
  for (uint64_t i = 0; i < kFrames; ++i) {
    EXPECT_EQ(shard_.received[i].hello().session_id(), i);
    EXPECT_EQ(node_.received[i].welcome().session_id(), i);
  }
}

TEST_P(MessageStreamConformance, CallsOnWritableWhenItTakesTheNextFrame) {
  int sent = 0, called = 0;
  WithStreams([this, &sent, &called](Done done) {
    const auto send = [this, &sent, done] {
      // Larger than the buffers of every transport: the stream is not writable for a while.
      while (node_.stream->writable()) {
        if (sent == 10) return done();
        node_.Send(NodeFrame(sent, sent < kGreetingFrames ? 0 : 2 << 20));
        ++sent;
      }
    };
    node_.on_writable = [&called, send] {
      ++called;
      send();
    };
    send();
  });
  EXPECT_EQ(sent, 10);
  EXPECT_GE(called, 1);
}

TEST_P(MessageStreamConformance, AFrameMayBeSentBeforeTheConnectionIsMade) {
  harness_->Run([this](Done done) {
    harness_->OnAccept([this, done](std::unique_ptr<ShardStream> stream) {
      shard_.stream = std::move(stream);
      shard_.on_message = done;
      shard_.Start();
    });
    node_.stream = harness_->Connect();
    node_.Start();
    ASSERT_TRUE(node_.stream->writable());
    node_.Send(NodeFrame(7));
  });
  EXPECT_EQ(shard_.received[0].hello().session_id(), 7);
}

TEST_P(MessageStreamConformance, FramesWaitUntilTheStreamIsStarted) {
  harness_->Run([this](Done done) {
    harness_->OnAccept([this, done](std::unique_ptr<ShardStream> stream) {
      shard_.stream = std::move(stream);
      shard_.on_message = done;
      harness_->executor().RunAt(harness_->executor().Now() + absl::Milliseconds(20),
                                 [this] { shard_.Start(); });
    });
    node_.stream = harness_->Connect();
    node_.Start();
    node_.Send(NodeFrame(7));
  });
  EXPECT_EQ(shard_.received[0].hello().session_id(), 7);
}

TEST_P(MessageStreamConformance, TheLargestFrameArrivesWhole) {
  constexpr size_t kPadding = kMaxFrameBytes - 100;
  constexpr uint64_t kFrames = kGreetingFrames + 1;
  const auto padding = [](uint64_t number) { return number < kGreetingFrames ? 0 : kPadding; };
  WithStreams([this, padding](Done done) {
    node_.on_message = [this, done] {
      if (node_.received.size() == kFrames) done();
    };
    shard_.on_message = [this, padding] {
      if (shard_.received.size() < kFrames) return;
      shard_.SendUpTo(kFrames, [this, padding](uint64_t number) {
        shard_.Send(ShardFrame(number, padding(number)));
      });
    };
    node_.SendUpTo(kFrames, [this, padding](uint64_t number) {
      node_.Send(NodeFrame(number, padding(number)));
    });
  });
  EXPECT_EQ(shard_.received.back().hello().nonce(), std::string(kPadding, 'x'));
  EXPECT_EQ(node_.received.back().refused().message(), std::string(kPadding, 'x'));
}

TEST_P(MessageStreamConformance, TheNodeReadsTheShardsFramesAndThenItsStatus) {
  WithStreams([this](Done done) {
    shard_.Send(ShardFrame(1));
    shard_.Close(absl::PermissionDeniedError("because"));
    node_.on_closed = done;
  });
  ASSERT_EQ(node_.received.size(), 1);
  EXPECT_THAT(node_.closed, ::testing::ElementsAre(absl::PermissionDeniedError("because")));
}

TEST_P(MessageStreamConformance, TheShardReadsTheNodesFramesBeforeTheClose) {
  WithStreams([this](Done done) {
    node_.Send(NodeFrame(1));
    node_.Close(absl::OkStatus());
    shard_.on_closed = done;
  });
  EXPECT_EQ(shard_.received.size(), 1);
  EXPECT_THAT(shard_.closed, ::testing::ElementsAre(absl::OkStatus()));
}

TEST_P(MessageStreamConformance, AStreamThatIsDroppedShowsAtTheOtherEnd) {
  WithStreams([this](Done done) {
    shard_.on_closed = done;
    node_.stream.reset();
  });
  ASSERT_EQ(shard_.closed.size(), 1);
  EXPECT_FALSE(shard_.closed[0].ok());
}

TEST_P(MessageStreamConformance, AStreamThatIsDroppedByTheShardShowsAtTheNode) {
  WithStreams([this](Done done) {
    node_.on_closed = done;
    shard_.stream.reset();
  });
  ASSERT_EQ(node_.closed.size(), 1);
  EXPECT_FALSE(node_.closed[0].ok());
}

TEST_P(MessageStreamConformance, NothingIsCalledAfterClose) {
  WithStreams([this](Done done) {
    shard_.on_closed = done;
    ShardSends(100);
    node_.on_message = [this] {
      node_.Close(absl::CancelledError("enough"));
      node_.Close(absl::CancelledError("twice"));
    };
  });
  EXPECT_EQ(node_.received.size(), 1);
  EXPECT_TRUE(node_.closed.empty());
}

TEST_P(MessageStreamConformance, ACallbackMayDestroyItsStream) {
  WithStreams([this](Done done) {
    node_.on_message = [this] { node_.stream.reset(); };
    shard_.on_closed = [this, done] {
      shard_.stream.reset();
      done();
    };
    ShardSends(10);
  });
  EXPECT_EQ(node_.received.size(), 1);
}

TEST_P(MessageStreamConformance, BothEndsMayCloseAtOnce) {
  WithStreams([this](Done done) {
    node_.Send(NodeFrame(1));
    shard_.Send(ShardFrame(1));
    node_.Close(absl::OkStatus());
    shard_.Close(absl::UnavailableError("restart"));
    harness_->executor().RunAt(harness_->executor().Now() + absl::Milliseconds(20), done);
  });
  EXPECT_TRUE(node_.closed.empty()) << "the side that closes gets no callback";
  EXPECT_TRUE(shard_.closed.empty()) << "the side that closes gets no callback";
}

TEST_P(MessageStreamConformance, AnAddressWithoutAListenerIsUnavailable) {
  harness_->Run([this](Done done) {
    node_.stream = harness_->ConnectToClosedAddress();
    node_.on_closed = done;
    node_.Start();
    node_.Send(NodeFrame(1));
  });
  ASSERT_EQ(node_.closed.size(), 1);
  EXPECT_THAT(node_.closed[0], testing::StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(MessageStreamConformance, ManyStreamsOpenAndCloseBesideEachOther) {
  static constexpr int kStreams = 50;
  std::vector<std::unique_ptr<NodeStream>> nodes;
  std::vector<std::unique_ptr<ShardStream>> shards;
  int closed = 0;
  harness_->Run([&](Done done) {
    harness_->OnAccept([&](std::unique_ptr<ShardStream> stream) {
      ShardStream* const echo = stream.get();
      shards.push_back(std::move(stream));
      echo->Start({.on_message =
                       [echo](const v1::NodeFrame& frame) {
                         echo->Send(ShardFrame(frame.hello().session_id()));
                         echo->Close(absl::OkStatus());
                       },
                   .on_writable = [] {},
                   .on_closed = [](const absl::Status&) {}});
    });
    for (uint64_t i = 0; i < kStreams; ++i) {
      nodes.push_back(harness_->Connect());
      nodes.back()->Start(
          {.on_message =
               [i](const v1::ShardFrame& frame) { EXPECT_EQ(frame.welcome().session_id(), i); },
           .on_writable = [] {},
           .on_closed =
               [&closed, done](const absl::Status& why) {
                 EXPECT_THAT(why, testing::IsOk());
                 if (++closed == kStreams) done();
               }});
      nodes.back()->Send(NodeFrame(i));
    }
  });
  harness_->Run([&](Done done) {
    nodes.clear();
    shards.clear();
    done();
  });
}

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_MESSAGE_STREAM_CONFORMANCE_H_
