// The tests that every Network and its ByteStreams pass. Testonly.
//
// An implementation includes this header in one test and adds
//   INSTANTIATE_TEST_SUITE_P(Tcp, ByteStreamConformance, ::testing::Values(&MakeHarness));
#ifndef PHALANX_NET_STREAM_BYTE_STREAM_CONFORMANCE_H_
#define PHALANX_NET_STREAM_BYTE_STREAM_CONFORMANCE_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::net {

// Two parties that can reach each other, and a way to run them. The thread of the test calls every
// method.
class NetworkHarness {
 public:
  virtual ~NetworkHarness() = default;
  // The network and executor of one party. Both parties run on one thread during Run.
  struct Party {
    Network& network;
    Executor& executor;
  };
  virtual Party client() = 0;
  virtual Party server() = 0;
  // An address on which the server can listen, with port 0, and one that does not belong to it.
  virtual Address listen_address() = 0;
  virtual Address foreign_address() = 0;
  // Runs `body` as a task of the client, and runs both parties until the body calls `done`.
  virtual void Run(std::function<void(std::function<void()> done)> body) = 0;
};

using MakeNetworkHarness = std::unique_ptr<NetworkHarness> (*)();

class ByteStreamConformance : public ::testing::TestWithParam<MakeNetworkHarness> {
 protected:
  using Done = std::function<void()>;
  static constexpr absl::Duration kSoon = absl::Seconds(20);

  // One side of the connection under test. Used on its executor.
  struct End {
    Executor* executor = nullptr;
    std::unique_ptr<ByteStream> stream;
    std::string received;
    size_t sent = 0;
    // The status with which reading, or writing, ended.
    absl::Status status;
  };

  ~ByteStreamConformance() override {
    // Destroys streams and listeners on their executors, before those are destroyed.
    harness_->Run([this](Done done) {
      client_.stream.reset();
      OnServer([this, done] {
        server_.stream.reset();
        listener_.reset();
        OnClient(done);
      });
    });
  }

  void OnClient(std::function<void()> task) { harness_->client().executor.Post(std::move(task)); }
  void OnServer(std::function<void()> task) { harness_->server().executor.Post(std::move(task)); }

  // Byte i of the bytes that a side sends.
  static std::string Pattern(size_t size, int salt) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 7 + i / 251 + salt) % 256);
    return bytes;
  }

  // Listens on `listener_`, passes accepted streams to `accepted`, then runs `then` on the client.
  void Listen(std::function<void(std::unique_ptr<ByteStream>)> accepted,
              std::function<void()> then) {
    OnServer([=, this] {
      Executor& executor = harness_->server().executor;
      auto listener = harness_->server().network.Listen(
          executor, harness_->listen_address(), [&executor]() -> Executor& { return executor; },
          [accepted, &executor](Executor& owner, std::unique_ptr<ByteStream> stream) {
            EXPECT_EQ(&owner, &executor);
            EXPECT_TRUE(owner.InLoop());
            accepted(std::move(stream));
          });
      PHALANX_EXPECT_OK(listener);
      listener_ = *std::move(listener);
      OnClient(then);
    });
  }

  void Dial(const Address& to, absl::Duration timeout,
            std::function<void(absl::StatusOr<std::unique_ptr<ByteStream>>)> done) {
    const auto [network, executor] = harness_->client();
    network.Dial(executor, to, executor.Now() + timeout, std::move(done));
  }

  // Connects client_ and server_, then runs `then` on the client.
  void Connect(std::function<void()> then) {
    auto missing = std::make_shared<int>(2);
    const auto arrived = [this, missing, then] {
      if (--*missing == 0) OnClient(then);
    };
    Listen(
        [this, arrived](std::unique_ptr<ByteStream> stream) {
          server_.executor = &harness_->server().executor;
          server_.stream = std::move(stream);
          arrived();
        },
        [this, arrived] {
          Dial(listener_->address(), kSoon, [this, arrived](auto stream) {
            PHALANX_ASSERT_OK(stream);
            EXPECT_TRUE(harness_->client().executor.InLoop());
            client_.executor = &harness_->client().executor;
            client_.stream = *std::move(stream);
            arrived();
          });
        });
  }

  // Writes the rest of `bytes` (from end.sent on), then runs `then`, also if the stream fails.
  static void WriteAll(End& end, std::shared_ptr<const std::string> bytes,
                       std::function<void()> then) {
    while (end.sent < bytes->size()) {
      char* at = const_cast<char*>(bytes->data()) + end.sent;
      const size_t left = bytes->size() - end.sent;
      const size_t first = std::min<size_t>(left, 1000);
      const iovec parts[] = {{at, first}, {at + first, left - first}};
      const auto wrote = end.stream->Write(parts);
      if (!wrote.ok()) {
        end.status = wrote.status();
        return then();
      }
      end.sent += *wrote;
      if (*wrote == 0) {
        end.stream->OnWritable([&end, bytes, then] { WriteAll(end, bytes, then); });
        return;
      }
    }
    then();
  }

  // Reads until `size` bytes have arrived or the stream ends or fails, then runs `then`.
  static void ReadUntil(End& end, size_t size, std::function<void()> then) {
    while (end.received.size() < size) {
      char small[3], large[5000];
      const iovec parts[] = {{small, sizeof(small)}, {large, sizeof(large)}};
      const auto got = end.stream->Read(parts);
      if (!got.ok()) {
        end.status = got.status();
        return then();
      }
      if (*got == 0) {
        end.stream->OnReadable([&end, size, then] { ReadUntil(end, size, then); });
        return;
      }
      end.received.append(small, std::min(*got, sizeof(small)));
      if (*got > sizeof(small)) end.received.append(large, *got - sizeof(small));
    }
    then();
  }

  static absl::StatusOr<size_t> WriteSome(ByteStream& stream, std::string bytes) {
    const iovec part = {bytes.data(), bytes.size()};
    return stream.Write({&part, 1});
  }

  // Calls `done` on the `count`th call.
  static std::function<void()> After(int count, std::function<void()> done) {
    auto left = std::make_shared<int>(count);
    return [left, done] {
      if (--*left == 0) done();
    };
  }

  const std::unique_ptr<NetworkHarness> harness_ = GetParam()();
  std::unique_ptr<Listener> listener_;
  End client_;
  End server_;
};

TEST_P(ByteStreamConformance, CarriesBytesBothWaysInOrder) {
  constexpr size_t kSize = 1 << 20;
  const auto up = std::make_shared<const std::string>(Pattern(kSize, 1));
  const auto down = std::make_shared<const std::string>(Pattern(kSize, 2));
  harness_->Run([&](Done done) {
    Connect([&, done] {
      const auto finished = After(4, done);
      WriteAll(client_, up, finished);
      ReadUntil(client_, kSize, finished);
      OnServer([&, finished] {
        WriteAll(server_, down, finished);
        ReadUntil(server_, kSize, finished);
      });
    });
  });
  EXPECT_TRUE(server_.received == *up);
  EXPECT_TRUE(client_.received == *down);
}

TEST_P(ByteStreamConformance, ReadsZeroBytesIfNoneAreAvailable) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      char byte;
      const iovec into = {&byte, 1};
      EXPECT_THAT(client_.stream->Read({&into, 1}), testing::IsOkAndHolds(0));
      EXPECT_THAT(client_.stream->Read({}), testing::IsOkAndHolds(0));
      EXPECT_THAT(client_.stream->Write({}), testing::IsOkAndHolds(0));
      done();
    });
  });
}

TEST_P(ByteStreamConformance, ReportsAvailableBytesInALaterTurnEachTimeItIsArmed) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      auto inside = std::make_shared<bool>(true);
      client_.stream->OnReadable([&, inside, done] {
        *inside = true;
        client_.stream->OnReadable([&, inside, done] {
          EXPECT_FALSE(*inside) << "called from OnReadable";
          EXPECT_THAT(client_.stream->Read({}), testing::IsOkAndHolds(0)) << "no room, no end";
          ReadUntil(client_, 1, done);
        });
        *inside = false;
      });
      OnServer([this] { EXPECT_THAT(WriteSome(*server_.stream, "x"), testing::IsOkAndHolds(1)); });
    });
  });
  EXPECT_EQ(client_.received, "x");
}

TEST_P(ByteStreamConformance, ArmingAgainReplacesAndAnEmptyCallbackDisarms) {
  int replaced = 0, disarmed = 0, second = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      client_.stream->OnReadable([&] { ++replaced; });
      client_.stream->OnReadable([&, done] {
        ++second;
        Executor& executor = harness_->client().executor;
        executor.RunAt(executor.Now() + absl::Milliseconds(5), done);
      });
      client_.stream->OnWritable([&] { ++disarmed; });
      client_.stream->OnWritable(nullptr);
      OnServer([this] { EXPECT_THAT(WriteSome(*server_.stream, "x"), testing::IsOkAndHolds(1)); });
    });
  });
  EXPECT_EQ(replaced, 0);
  EXPECT_EQ(disarmed, 0);
  EXPECT_EQ(second, 1);
}

TEST_P(ByteStreamConformance, ANewStreamIsWritable) {
  bool inside = false;
  size_t taken = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      inside = true;
      client_.stream->OnWritable([&, done] {
        EXPECT_FALSE(inside) << "in a later turn";
        const auto wrote = WriteSome(*client_.stream, "first");
        PHALANX_EXPECT_OK(wrote);
        taken = wrote.value_or(0);
        done();
      });
      inside = false;
    });
  });
  EXPECT_EQ(taken, 5u);
}

TEST_P(ByteStreamConformance, AReaderThatStopsStopsTheWriterUntilItReadsAgain) {
  constexpr size_t kSize = 24 << 20;
  const auto bytes = std::make_shared<const std::string>(Pattern(kSize, 3));
  size_t taken = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      const auto finished = After(2, done);
      // Stops at the first 0; the reader begins only then.
      while (taken < kSize) {
        const iovec part = {const_cast<char*>(bytes->data()) + taken, kSize - taken};
        const auto wrote = client_.stream->Write({&part, 1});
        PHALANX_ASSERT_OK(wrote);
        if (*wrote == 0) break;
        taken += *wrote;
      }
      client_.sent = taken;
      WriteAll(client_, bytes, finished);
      OnServer([&, finished] { ReadUntil(server_, kSize, finished); });
    });
  });
  EXPECT_LT(taken, kSize) << "nothing bounds what the system buffers";
  EXPECT_TRUE(server_.received == *bytes);
}

TEST_P(ByteStreamConformance, AnUnsentLimitDoesNotStopTheBytes) {
  constexpr size_t kSize = 2 << 20;
  const auto bytes = std::make_shared<const std::string>(Pattern(kSize, 4));
  harness_->Run([&](Done done) {
    Connect([&, done] {
      const auto finished = After(2, done);
      client_.stream->SetUnsentLimit(16 << 10);
      WriteAll(client_, bytes, finished);
      OnServer([&, finished] { ReadUntil(server_, kSize, finished); });
    });
  });
  EXPECT_TRUE(server_.received == *bytes);
}

TEST_P(ByteStreamConformance, CloseDeliversTheWrittenBytesAndThenEndOfFile) {
  const std::string bytes = Pattern(100'000, 5);
  size_t taken = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      const auto wrote = WriteSome(*client_.stream, bytes);
      PHALANX_ASSERT_OK(wrote);
      taken = *wrote;
      client_.stream->Close();
      client_.stream->Close();
      OnServer([&, done] { ReadUntil(server_, SIZE_MAX, done); });
    });
  });
  EXPECT_GT(taken, 0u);
  EXPECT_TRUE(server_.received == bytes.substr(0, taken));
  EXPECT_THAT(server_.status, testing::StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_P(ByteStreamConformance, CloseWithUnreadBytesStillDeliversTheWrittenOnes) {
  const std::string bytes = Pattern(500'000, 6);
  size_t taken = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      client_.stream->OnReadable([&, done] {
        while (true) {
          const auto wrote = WriteSome(*client_.stream, bytes.substr(taken));
          PHALANX_ASSERT_OK(wrote);
          taken += *wrote;
          if (*wrote == 0 || taken == bytes.size()) break;
        }
        client_.stream.reset();
        OnServer([&, done] { ReadUntil(server_, SIZE_MAX, done); });
      });
      OnServer([this] { PHALANX_EXPECT_OK(WriteSome(*server_.stream, Pattern(1000, 7))); });
    });
  });
  EXPECT_EQ(server_.received.size(), taken);
  EXPECT_TRUE(server_.received == bytes.substr(0, taken));
  EXPECT_THAT(server_.status, testing::StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_P(ByteStreamConformance, CloseDeliversBytesWhileThePeerStillWrites) {
  const auto up = std::make_shared<const std::string>(Pattern(200'000, 8));
  const auto down = std::make_shared<const std::string>(Pattern(11 << 20, 9));
  absl::Status write_status;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      const auto finished = After(2, done);
      OnServer([&, finished] {
        WriteAll(server_, down, [&, finished] {
          write_status = server_.status;
          finished();
        });
        // Starts to read only after bytes and the end of file have arrived unread.
        OnClient([&, finished] {
          client_.stream->OnReadable([&, finished] {
            WriteAll(client_, up, [&, finished] {
              client_.stream.reset();
              OnServer([&, finished] { ReadUntil(server_, SIZE_MAX, finished); });
            });
          });
        });
      });
    });
  });
  EXPECT_THAT(write_status, testing::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(server_.received == *up);
  EXPECT_THAT(server_.status, ::testing::AnyOf(testing::StatusIs(absl::StatusCode::kOutOfRange),
                                               testing::StatusIs(absl::StatusCode::kUnavailable)));
}

TEST_P(ByteStreamConformance, CallsNothingAfterCloseAndRefusesToMoveBytes) {
  int calls = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      client_.stream->OnReadable([&] { ++calls; });
      client_.stream->OnWritable([&] { ++calls; });
      OnServer([&, done] {
        PHALANX_EXPECT_OK(WriteSome(*server_.stream, "x"));
        OnClient([&, done] {
          client_.stream->Close();
          calls = 0;
          client_.stream->OnReadable([&] { ++calls; });
          EXPECT_THAT(WriteSome(*client_.stream, "x"),
                      testing::StatusIs(absl::StatusCode::kUnavailable));
          EXPECT_THAT(client_.stream->Read({}), testing::StatusIs(absl::StatusCode::kUnavailable));
          Executor& executor = harness_->client().executor;
          executor.RunAt(executor.Now() + absl::Milliseconds(5), done);
        });
      });
    });
  });
  EXPECT_EQ(calls, 0);
}

TEST_P(ByteStreamConformance, WritingToAPeerThatClosedFailsEventually) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      OnServer([this] { server_.stream.reset(); });
      auto again = std::make_shared<std::function<void()>>();
      *again = [&, again, done] {
        const auto wrote = WriteSome(*client_.stream, "x");
        client_.status = wrote.status();
        Executor& executor = harness_->client().executor;
        if (!wrote.ok()) {
          executor.Post([again, done] {
            *again = nullptr;
            done();
          });
          return;
        }
        executor.RunAt(executor.Now() + absl::Milliseconds(1), *again);
      };
      (*again)();
    });
  });
  EXPECT_THAT(client_.status, testing::StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(ByteStreamConformance, EndOfFileIsReadable) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      client_.stream->OnReadable(done);
      OnServer([this] { server_.stream.reset(); });
    });
  });
}

TEST_P(ByteStreamConformance, ACallbackCanDestroyItsStream) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      client_.stream->OnReadable([] { ADD_FAILURE() << "destroyed"; });
      client_.stream->OnWritable([&, done] {
        client_.stream.reset();
        OnServer([&, done] { ReadUntil(server_, 1, done); });
      });
    });
  });
  EXPECT_THAT(server_.status, testing::StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_P(ByteStreamConformance, ADetachedStreamGoesOnAfterItsUnreadBytes) {
  constexpr size_t kSize = 1 << 20;
  const auto up = std::make_shared<const std::string>(Pattern(kSize, 1));
  const auto down = std::make_shared<const std::string>(Pattern(kSize, 2));
  int calls = 0;
  harness_->Run([&](Done done) {
    Connect([&, done] {
      const auto finished = After(3, done);
      WriteAll(client_, up, finished);
      ReadUntil(client_, kSize, finished);
      OnServer([&, finished] {
        // Arrived bytes wait in the stream, whose callbacks end with it.
        ReadUntil(server_, 1000, [&, finished] {
          server_.stream->OnReadable([&] { ++calls; });
          server_.stream->OnWritable([&] { ++calls; });
          std::shared_ptr<DetachedStream> detached = server_.stream->Detach();
          ASSERT_NE(detached, nullptr);
          calls = 0;
          EXPECT_THAT(server_.stream->Read({}), testing::StatusIs(absl::StatusCode::kUnavailable));
          EXPECT_THAT(WriteSome(*server_.stream, "x"),
                      testing::StatusIs(absl::StatusCode::kUnavailable));
          server_.stream.reset();
          OnServer([&, detached, finished] {
            auto stream = detached->Attach(*server_.executor);
            PHALANX_ASSERT_OK(stream);
            server_.stream = *std::move(stream);
            WriteAll(server_, down, [] {});
            ReadUntil(server_, kSize, finished);
          });
        });
      });
    });
  });
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(server_.received == *up);
  EXPECT_TRUE(client_.received == *down);
}

TEST_P(ByteStreamConformance, DestroyingADetachedStreamClosesTheConnection) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      OnServer([this] {
        server_.stream->Detach().reset();
        server_.stream.reset();
      });
      ReadUntil(client_, 1, done);
    });
  });
  EXPECT_FALSE(client_.status.ok());
}

TEST_P(ByteStreamConformance, NamesItsPeerAndHasNoNegativeRoundTrip) {
  harness_->Run([&](Done done) {
    Connect([&, done] {
      EXPECT_EQ(client_.stream->peer(), listener_->address());
      EXPECT_GE(client_.stream->RoundTrip(), absl::ZeroDuration());
      OnServer([&, done] {
        EXPECT_THAT(server_.stream->peer(), ::testing::HasSubstr(":"));
        done();
      });
    });
  });
}

TEST_P(ByteStreamConformance, DialingWithoutAListenerIsUnavailableAndNamesTheAddress) {
  harness_->Run([&](Done done) {
    Listen([](auto) {},
           [&, done] {
             const Address address = listener_->address();
             OnServer([&, address, done] {
               listener_.reset();
               OnClient([&, address, done] {
                 Dial(address, kSoon, [address, done](auto stream) {
                   EXPECT_THAT(stream, testing::StatusIs(absl::StatusCode::kUnavailable,
                                                         ::testing::HasSubstr(address)));
                   done();
                 });
               });
             });
           });
  });
}

TEST_P(ByteStreamConformance, DialingReportsInvalidAddressesAndDeadlinesInALaterTurn) {
  bool inside = true;
  harness_->Run([&](Done done) {
    Listen([](auto) {},
           [&, done] {
             const auto finished = After(2, done);
             Dial("no port", kSoon, [&, finished](auto stream) {
               EXPECT_FALSE(inside);
               EXPECT_THAT(stream, testing::StatusIs(absl::StatusCode::kInvalidArgument));
               finished();
             });
             Dial(listener_->address(), absl::ZeroDuration(), [&, finished](auto stream) {
               EXPECT_FALSE(inside);
               EXPECT_THAT(stream, testing::StatusIs(absl::StatusCode::kDeadlineExceeded));
               finished();
             });
             inside = false;
           });
  });
}

TEST_P(ByteStreamConformance, OnePortHasOneListenerAtATime) {
  harness_->Run([&](Done done) {
    Listen([](auto) {},
           [&, done] {
             OnServer([&, done] {
               const Address address = listener_->address();
               EXPECT_THAT(address, ::testing::Not(::testing::EndsWith(":0")));
               const auto [network, executor] = harness_->server();
               const auto listen = [&](const Address& on) {
                 return network.Listen(
                     executor, on, [&executor]() -> Executor& { return executor; },
                     [](auto&, auto) {});
               };
               EXPECT_THAT(listen(address), testing::StatusIs(absl::StatusCode::kAlreadyExists,
                                                              ::testing::HasSubstr(address)));
               listener_.reset();
               auto again = listen(address);
               PHALANX_EXPECT_OK(again);
               EXPECT_EQ(again.ok() ? (*again)->address() : "", address);
               done();
             });
           });
  });
}

TEST_P(ByteStreamConformance, ListensOnlyOnItsOwnAddresses) {
  harness_->Run([&](Done done) {
    OnServer([&, done] {
      const auto [network, executor] = harness_->server();
      for (const Address& address : {Address("no port"), harness_->foreign_address()}) {
        EXPECT_THAT(
            network.Listen(
                executor, address, [&executor]() -> Executor& { return executor; },
                [](auto&, auto) {}),
            testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(address)));
      }
      done();
    });
  });
}

TEST_P(ByteStreamConformance, ConnectionsDoNotMix) {
  constexpr int kConnections = 30;
  std::vector<End> clients(kConnections), servers;
  servers.reserve(kConnections);
  std::vector<int> seen(kConnections);
  harness_->Run([&](Done done) {
    const auto finished = After(2 * kConnections, done);
    const auto accepted = [&, finished](std::unique_ptr<ByteStream> stream) {
      End& end = servers.emplace_back();
      end.stream = std::move(stream);
      // Reads until end of file: a client sends only one message.
      ReadUntil(end, SIZE_MAX, [&, finished] {
        const int index = static_cast<unsigned char>(end.received.at(0));
        ++seen.at(index);
        EXPECT_EQ(end.received, std::string(1000, static_cast<char>(index)));
        end.stream.reset();
        finished();
      });
    };
    Listen(accepted, [&, finished] {
      for (int i = 0; i < kConnections; ++i) {
        Dial(listener_->address(), kSoon, [&clients, i, finished](auto stream) {
          PHALANX_ASSERT_OK(stream);
          clients[i].stream = *std::move(stream);
          const auto bytes =
              std::make_shared<const std::string>(std::string(1000, static_cast<char>(i)));
          WriteAll(clients[i], bytes, [&clients, i, finished] {
            clients[i].stream.reset();
            finished();
          });
        });
      }
    });
  });
  EXPECT_THAT(seen, ::testing::Each(1));
}

}  // namespace phalanx::net

#endif  // PHALANX_NET_STREAM_BYTE_STREAM_CONFORMANCE_H_
