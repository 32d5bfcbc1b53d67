#include "phalanx/client.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

ObjectId Id(int i) { return ObjectId::FromName("test", absl::StrCat(i)); }

// Byte i is i * 31 + seed, modulo a prime.
std::string Content(size_t size, int seed = 1) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>((i * 31 + static_cast<size_t>(seed)) % 251);
  }
  return bytes;
}

std::shared_ptr<Client> ConnectTo(const LocalNode& node) {
  ClientOptions options;
  options.address = node.address();
  auto client = Client::Connect(options);
  EXPECT_THAT(client, IsOk());
  return *client;
}

class ClientTest : public ::testing::Test {
 protected:
  ~ClientTest() override {
    client_.reset();
    EXPECT_THAT(node_.CheckInvariants(), IsOk());
  }
  // Waits until the node has released every pin of the clients that left.
  void ExpectNoPins() {
    node_.Await([this] { return node_.store().stats().pins == 0; });
  }

  LocalNode node_;
  std::shared_ptr<Client> client_ = ConnectTo(node_);
};

// ---------------------------------------------------------------------------- round trips

class RoundTrip : public ClientTest, public ::testing::WithParamInterface<size_t> {};

TEST_P(RoundTrip, GetReturnsThePutBytes) {
  const std::string bytes = Content(GetParam());
  PutOptions options;
  options.metadata = "dtype=float32";
  PHALANX_ASSERT_OK_AND_ASSIGN(const PutResult put, client_->Put(Id(1), bytes, options).Wait());
  EXPECT_FALSE(put.already_existed);
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer buffer, client_->Get(Id(1)).Wait());
  EXPECT_TRUE(buffer.view() == bytes);
  EXPECT_EQ(buffer.size(), bytes.size());
  EXPECT_EQ(buffer.object_size(), bytes.size());
  EXPECT_EQ(buffer.metadata(), "dtype=float32");
  EXPECT_EQ(buffer.id(), Id(1));
}

TEST_P(RoundTrip, AnotherClientSeesTheSame) {
  const std::string bytes = Content(GetParam());
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  const auto other = ConnectTo(node_);
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer first, other->Get(Id(1)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer second, other->Get(Id(1)).Wait());
  EXPECT_TRUE(first.view() == bytes);
  EXPECT_TRUE(second.view() == bytes);
}

TEST_P(RoundTrip, AnObjectWrittenInPiecesIsComplete) {
  const std::string bytes = Content(GetParam());
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer buffer, client_->Create(Id(1), bytes.size()));
  ASSERT_EQ(buffer.span().size(), bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const size_t next = std::min(bytes.size(), at + bytes.size() / 3 + 1);
    std::copy(bytes.begin() + static_cast<ptrdiff_t>(at),
              bytes.begin() + static_cast<ptrdiff_t>(next),
              buffer.span().begin() + static_cast<ptrdiff_t>(at));
    at = next;
    PHALANX_ASSERT_OK(buffer.Publish(at));
  }
  PHALANX_ASSERT_OK(buffer.Seal().Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer got, client_->Get(Id(1)).Wait());
  EXPECT_TRUE(got.view() == bytes);
}

TEST_P(RoundTrip, AStreamReadsIt) {
  const std::string bytes = Content(GetParam());
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(ObjectStream stream, client_->GetStream(Id(1)));
  EXPECT_EQ(stream.object_size(), bytes.size());
  std::string read;
  while (true) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const absl::string_view next, stream.Next(100000));
    if (next.empty()) break;
    EXPECT_LE(next.size(), 100000u);
    read.append(next.data(), next.size());
  }
  EXPECT_TRUE(read == bytes);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RoundTrip,
                         ::testing::Values(0, 1, 65535, 65536, 65537, (1 << 20) - 1, 1 << 20,
                                           (1 << 20) + 1, 64 << 20));

// ---------------------------------------------------------------------------- writing

TEST_F(ClientTest, PuttingTheSameObjectAgainSucceeds) {
  const std::string bytes = Content(2 << 20);
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  PHALANX_ASSERT_OK(client_->Put(Id(2), "small").Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const PutResult large, client_->Put(Id(1), bytes).Wait());
  EXPECT_TRUE(large.already_existed);
  PHALANX_ASSERT_OK_AND_ASSIGN(const PutResult small, client_->Put(Id(2), "SMALL").Wait());
  EXPECT_TRUE(small.already_existed);
  EXPECT_EQ(client_->Get(Id(2)).Wait()->view(), "small");
}

TEST_F(ClientTest, PuttingAnotherSizeFailsAndNamesTheObject) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "five!").Wait());
  EXPECT_THAT(client_->Put(Id(1), "seven!!").Wait(),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr(Id(1).hex()), HasSubstr(node_.address()))));
}

TEST_F(ClientTest, RejectsBadArgumentsBeforeSending) {
  PutOptions options;
  options.slices = 65;
  EXPECT_THAT(client_->Put(Id(1), "x", options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not 65")));
  options.slices = 1;
  options.metadata = std::string(4097, 'm');
  EXPECT_THAT(client_->Create(Id(1), 1, options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4096")));
  EXPECT_THAT(client_->Put(ObjectId(), "x").Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Get(ObjectId()).Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Create(Id(1), uint64_t{1} << 60).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ClientTest, MetadataOf4096BytesAnd64SlicesTravel) {
  PutOptions options;
  options.metadata = Content(4096);
  options.slices = 64;
  const std::string bytes = Content(3000000);
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes, options).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer buffer, client_->Get(Id(1)).Wait());
  EXPECT_TRUE(buffer.view() == bytes);
  EXPECT_TRUE(buffer.metadata() == options.metadata);
}

TEST_F(ClientTest, RejectsObjectsLargerThanTheNode) {
  EXPECT_THAT(client_->Create(Id(1), uint64_t{1} << 30).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(Id(1).hex())));
}

TEST(FullNode, PutWaitsForMemoryUpToItsTimeout) {
  LocalNode node(uint64_t{16} << 20);
  const auto client = ConnectTo(node);
  const std::string more_than_half = Content(10 << 20);
  PHALANX_ASSERT_OK(client->Put(Id(1), more_than_half).Wait());
  PutOptions options;
  options.timeout = absl::Milliseconds(20);
  EXPECT_THAT(client->Put(Id(2), more_than_half, options).Wait(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  PHALANX_ASSERT_OK(client->Delete(Id(1)).Wait());
  PHALANX_ASSERT_OK(client->Put(Id(2), more_than_half).Wait());
}

TEST_F(ClientTest, ManyConcurrentPutsSucceed) {
  const std::string bytes = Content(500000);
  std::vector<Future<PutResult>> puts;
  // More than can be in flight together.
  for (int i = 0; i < 150; ++i) puts.push_back(client_->Put(Id(i), bytes));
  for (const auto& put : puts) EXPECT_THAT(put.Wait(), IsOk());
  std::vector<ObjectId> ids;
  for (int i = 0; i < 150; ++i) ids.push_back(Id(i));
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> all, client_->GetMany(ids).Wait());
  for (const Buffer& buffer : all) EXPECT_TRUE(buffer.view() == bytes);
}

TEST_F(ClientTest, WaitForAdoptionEndsWhenTheDirectoryAgrees) {
  PutOptions options;
  options.wait_for_adoption = true;
  PHALANX_EXPECT_OK(client_->Put(Id(1), "bytes", options).Wait());
  PHALANX_EXPECT_OK(client_->Put(Id(2), Content(2 << 20), options).Wait());
}

TEST_F(ClientTest, PublishOnlyGoesForward) {
  for (const uint64_t size : {uint64_t{1000}, uint64_t{2} << 20}) {
    PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer buffer,
                                 client_->Create(Id(static_cast<int>(size)), size));
    PHALANX_ASSERT_OK(buffer.Publish(500));
    EXPECT_THAT(buffer.Publish(499), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(buffer.Publish(size + 1), StatusIs(absl::StatusCode::kInvalidArgument));
    PHALANX_ASSERT_OK(buffer.Seal().Wait());
    EXPECT_THAT(buffer.Publish(600), StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(buffer.Seal().Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_TRUE(buffer.span().empty());
  }
}

TEST_F(ClientTest, ADroppedWritableBufferLeavesNothingBehind) {
  for (const uint64_t size : {uint64_t{1000}, uint64_t{2} << 20}) {
    { PHALANX_ASSERT_OK_AND_ASSIGN(const WritableBuffer buffer, client_->Create(Id(1), size)); }
    GetOptions options;
    options.timeout = absl::ZeroDuration();
    EXPECT_THAT(client_->Get(Id(1), options).Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(node_.store_stats().objects, 0u);
  }
}

TEST_F(ClientTest, SealedMemoryCannotBeWritten) {
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer buffer, client_->Create(Id(1), 2 << 20));
  char* const place = buffer.span().data();
  place[0] = 'a';
  PHALANX_ASSERT_OK(buffer.Seal().Wait());
  EXPECT_DEATH(place[0] = 'b', "");
}

TEST_F(ClientTest, TheSameFileIsReusedForNewObjects) {
  // The node hands out the warm file again while this client still has it mapped. Readers of the
  // earlier object keep their bytes.
  for (int i = 0; i < 20; ++i) {
    const std::string bytes = Content(3 << 20, i);
    PHALANX_ASSERT_OK(client_->Put(Id(i), bytes).Wait());
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer buffer, client_->Get(Id(i)).Wait());
    PHALANX_ASSERT_OK(client_->Delete(Id(i)).Wait());
    EXPECT_TRUE(buffer.view() == bytes);
  }
  EXPECT_LE(node_.memory_stats().files, 4u);
}

TEST_F(ClientTest, ABufferOutlivesDeletionAndRecycling) {
  const std::string bytes = Content(2 << 20);
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  PHALANX_ASSERT_OK(client_->Put(Id(2), Content(100000)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer large, client_->Get(Id(1)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer medium, client_->Get(Id(2)).Wait());
  PHALANX_ASSERT_OK(client_->Delete(Id(1)).Wait());
  PHALANX_ASSERT_OK(client_->Delete(Id(2)).Wait());
  for (int i = 10; i < 30; ++i) {
    PHALANX_ASSERT_OK(client_->Put(Id(i), std::string(2 << 20, 'z')).Wait());
    PHALANX_ASSERT_OK(client_->Put(Id(100 + i), std::string(100000, 'z')).Wait());
  }
  EXPECT_TRUE(large.view() == bytes);
  EXPECT_TRUE(medium.view() == Content(100000));
}

// ---------------------------------------------------------------------------- reading

TEST_F(ClientTest, GetWaitsForAPut) {
  const Future<Buffer> waiting = client_->Get(Id(1));
  EXPECT_THAT(waiting.Wait(absl::Milliseconds(10)), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(waiting.ready());
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer buffer, waiting.Wait());
  EXPECT_EQ(buffer.view(), "bytes");
}

TEST_F(ClientTest, GetEndsAtItsDeadlineAndNamesObjectAndNode) {
  GetOptions options;
  options.timeout = absl::Milliseconds(10);
  EXPECT_THAT(client_->Get(Id(1), options).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(Id(1).hex()), HasSubstr(node_.address()))));
  options.timeout = absl::ZeroDuration();
  EXPECT_THAT(client_->Get(Id(1), options).Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(ClientTest, RangesAreCutAtTheEnd) {
  for (const size_t size : {size_t{1000}, size_t{200000}, size_t{3} << 20}) {
    const ObjectId id = Id(static_cast<int>(size));
    const std::string bytes = Content(size);
    PHALANX_ASSERT_OK(client_->Put(id, bytes).Wait());
    const auto get = [&](uint64_t offset, uint64_t length) {
      GetOptions options;
      options.offset = offset;
      options.length = length;
      return client_->Get(id, options).Wait();
    };
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer middle, get(size / 3, size / 3));
    EXPECT_TRUE(middle.view() == absl::string_view(bytes).substr(size / 3, size / 3));
    EXPECT_EQ(middle.object_size(), size);
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer tail, get(size - 10, UINT64_MAX));
    EXPECT_TRUE(tail.view() == absl::string_view(bytes).substr(size - 10));
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer nothing, get(size, 5));
    EXPECT_EQ(nothing.size(), 0u);
    EXPECT_THAT(get(size + 1, 1), StatusIs(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(get(UINT64_MAX, UINT64_MAX), StatusIs(absl::StatusCode::kOutOfRange));
  }
}

TEST_F(ClientTest, GetIntoCopies) {
  const std::string bytes = Content(200000);
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  std::string into(300000, '\0');
  PHALANX_ASSERT_OK_AND_ASSIGN(const size_t size, client_->GetInto(Id(1), absl::MakeSpan(into)));
  EXPECT_EQ(size, bytes.size());
  EXPECT_TRUE(absl::string_view(into).substr(0, size) == bytes);
  EXPECT_THAT(client_->GetInto(Id(1), absl::MakeSpan(into).subspan(0, 10)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("do not fit")));
}

TEST_F(ClientTest, GetManyKeepsTheOrder) {
  std::vector<ObjectId> ids;
  for (int i = 0; i < 10000; ++i) ids.push_back(Id(i % 7));
  const auto all = client_->GetMany(ids);
  for (int i = 6; i >= 0; --i) PHALANX_ASSERT_OK(client_->Put(Id(i), absl::StrCat(i)).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> buffers, all.Wait());
  ASSERT_EQ(buffers.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(buffers[i].view(), absl::StrCat(i % 7));
  EXPECT_TRUE(client_->GetMany({}).Wait()->empty());
}

TEST_F(ClientTest, GetManyEndsWithTheFirstError) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "one").Wait());
  GetOptions options;
  options.offset = 100;
  const std::vector<ObjectId> ids = {Id(1), Id(2), Id(3)};
  EXPECT_THAT(client_->GetMany(ids, options).Wait(),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr(Id(1).hex())));
  node_.Await([&] { return node_.store().stats().waiting_gets == 0; });
}

TEST_F(ClientTest, GetFirstReturnsTheFirstArrivalsAndCancelsTheRest) {
  const std::vector<ObjectId> ids = {Id(0), Id(1), Id(2), Id(3)};
  const auto first = client_->GetFirst(ids, 2);
  PHALANX_ASSERT_OK(client_->Put(Id(2), "two").Wait());
  PHALANX_ASSERT_OK(client_->Put(Id(0), "zero").Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Client::Arrival> arrivals, first.Wait());
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].index, 2u);
  EXPECT_EQ(arrivals[0].buffer.view(), "two");
  EXPECT_EQ(arrivals[1].index, 0u);
  node_.Await([&] { return node_.store().stats().waiting_gets == 0; });
  EXPECT_THAT(client_->GetFirst(ids, 5).Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(client_->GetFirst(ids, 0).Wait()->empty());
}

TEST_F(ClientTest, GetFirstToleratesErrorsWhileEnoughObjectsRemain) {
  GetOptions options;
  options.timeout = absl::Milliseconds(10);
  PHALANX_ASSERT_OK(client_->Put(Id(0), "zero").Wait());
  const std::vector<ObjectId> ids = {Id(1), Id(0), Id(2)};
  PHALANX_ASSERT_OK_AND_ASSIGN(const auto one, client_->GetFirst(ids, 1, options).Wait());
  EXPECT_EQ(one[0].index, 1u);
  EXPECT_THAT(client_->GetFirst(ids, 2, options).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(ClientTest, GetsManyLargeObjectsAtOnce) {
  std::vector<ObjectId> ids;
  for (int i = 0; i < 200; ++i) {
    ids.push_back(Id(i));
    PHALANX_ASSERT_OK(client_->Put(Id(i), Content(1 << 20, i)).Wait());
  }
  const auto reader = ConnectTo(node_);
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> all, reader->GetMany(ids).Wait());
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(all[static_cast<size_t>(i)].view() == Content(1 << 20, i));
    }
    EXPECT_EQ(node_.store_stats().pins, 200u);
  }
  ExpectNoPins();
  // Mappings that were dropped are mapped again.
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> again, reader->GetMany(ids).Wait());
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(again[static_cast<size_t>(i)].view() == Content(1 << 20, i));
  }
}

TEST_F(ClientTest, BuffersCanBeCopiedAndOutliveTheirClient) {
  const std::string bytes = Content(2 << 20);
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  std::optional<Buffer> buffer;
  {
    const auto reader = ConnectTo(node_);
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer got, reader->Get(Id(1)).Wait());
    buffer = got;
  }
  EXPECT_EQ(node_.store_stats().pins, 1u) << "the pages stay pinned after the client left";
  EXPECT_TRUE(buffer->view() == bytes);
  buffer.reset();
  ExpectNoPins();
  node_.Await([&] { return node_.service().stats().clients == 1; });
}

TEST_F(ClientTest, AnEmptyBufferIsEmpty) {
  const Buffer buffer;
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.metadata(), "");
  EXPECT_TRUE(buffer.id().nil());
}

// ---------------------------------------------------------------------------- streams

TEST_F(ClientTest, AStreamFollowsTheWriter) {
  for (const size_t size : {size_t{30000}, size_t{300000}, size_t{3} << 20}) {
    const ObjectId id = Id(static_cast<int>(size));
    const std::string bytes = Content(size);
    PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer writer, client_->Create(id, size));
    const auto reader = ConnectTo(node_);
    PHALANX_ASSERT_OK_AND_ASSIGN(ObjectStream stream, reader->GetStream(id));
    EXPECT_EQ(stream.object_size(), size);
    EXPECT_THAT(stream.Next(SIZE_MAX, absl::Milliseconds(1)),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    std::string read;
    for (const size_t upto : {size / 3, size / 2, size}) {
      std::copy(bytes.begin(), bytes.end(), writer.span().begin());
      PHALANX_ASSERT_OK(writer.Publish(upto));
      while (read.size() < upto) {
        PHALANX_ASSERT_OK_AND_ASSIGN(const absl::string_view next, stream.Next());
        read.append(next.data(), next.size());
      }
      EXPECT_EQ(read.size(), upto) << "no byte before it is published";
    }
    EXPECT_THAT(stream.Next(SIZE_MAX, absl::Milliseconds(1)),
                StatusIs(absl::StatusCode::kDeadlineExceeded))
        << "all bytes are there, and still they may be void";
    PHALANX_ASSERT_OK(writer.Seal().Wait());
    PHALANX_ASSERT_OK_AND_ASSIGN(const absl::string_view end, stream.Next());
    EXPECT_TRUE(end.empty());
    EXPECT_TRUE(read == bytes);
  }
}

TEST_F(ClientTest, AStreamReportsVoidBytesAndRestarts) {
  const size_t size = 2 << 20;
  auto writer = client_->Create(Id(1), size);
  PHALANX_ASSERT_OK(writer);
  std::fill_n(writer->span().begin(), 1000, 'a');
  PHALANX_ASSERT_OK(writer->Publish(1000));
  const auto reader = ConnectTo(node_);
  PHALANX_ASSERT_OK_AND_ASSIGN(ObjectStream stream, reader->GetStream(Id(1)));
  PHALANX_ASSERT_OK_AND_ASSIGN(const absl::string_view provisional, stream.Next());
  EXPECT_EQ(provisional, std::string(1000, 'a'));
  writer->Abort();
  // Another attempt, with other bytes.
  const std::string bytes = Content(size + 5);
  PHALANX_ASSERT_OK(client_->Put(Id(1), bytes).Wait());
  EXPECT_THAT(stream.Next(), StatusIs(absl::StatusCode::kAborted, HasSubstr("void")));
  std::string read;
  while (true) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const absl::string_view next, stream.Next());
    if (next.empty()) break;
    read.append(next.data(), next.size());
  }
  EXPECT_TRUE(read == bytes);
  EXPECT_EQ(stream.object_size(), size + 5);
}

TEST_F(ClientTest, AStreamWithoutBytesEndsAtItsDeadline) {
  EXPECT_THAT(client_->GetStream(Id(1), absl::Milliseconds(10)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no bytes have arrived")));
  node_.Await([&] { return node_.store().stats().waiting_gets == 0; });
}

TEST_F(ClientTest, ADroppedStreamReleasesItsPins) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const WritableBuffer writer, client_->Create(Id(1), 2 << 20));
  const auto reader = ConnectTo(node_);
  { PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStream stream, reader->GetStream(Id(1))); }
  ExpectNoPins();
  EXPECT_EQ(node_.store_stats().waiting_gets, 0u);
}

// ---------------------------------------------------------------------------- managing

TEST_F(ClientTest, StatReportsTheObject) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStatus nothing, client_->Stat(Id(1)).Wait());
  EXPECT_FALSE(nothing.known);
  PutOptions options;
  options.metadata = "shape=3";
  options.wait_for_adoption = true;
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes", options).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStatus status, client_->Stat(Id(1)).Wait());
  EXPECT_TRUE(status.known);
  EXPECT_TRUE(status.complete);
  EXPECT_TRUE(status.local);
  EXPECT_EQ(status.size, 5u);
  EXPECT_EQ(status.metadata, "shape=3");
  EXPECT_EQ(status.complete_copies, 1);
}

TEST_F(ClientTest, ContainsAndDelete) {
  EXPECT_FALSE(*client_->Contains(Id(1)).Wait());
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  EXPECT_TRUE(*client_->Contains(Id(1)).Wait());
  PHALANX_ASSERT_OK(client_->Delete(Id(1)).Wait());
  EXPECT_FALSE(*client_->Contains(Id(1)).Wait());
  EXPECT_THAT(client_->Delete(Id(1)).Wait(), StatusIs(absl::StatusCode::kNotFound));
  PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStatus status, client_->Stat(Id(1)).Wait());
  EXPECT_TRUE(status.deleted);
}

TEST_F(ClientTest, BroadcastReturnsTheNumberOfNodes) {
  EXPECT_THAT(client_->Broadcast(Id(1)).Wait(), StatusIs(absl::StatusCode::kNotFound));
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  BroadcastOptions options;
  options.sticky = true;
  PHALANX_ASSERT_OK_AND_ASSIGN(const int nodes, client_->Broadcast(Id(1), options).Wait());
  EXPECT_EQ(nodes, 1);
  EXPECT_TRUE(client_->Stat(Id(1)).Wait()->sticky);
  PHALANX_ASSERT_OK_AND_ASSIGN(const BroadcastProgress progress, client_->ProgressOf(Id(1)).Wait());
  EXPECT_EQ(progress.nodes, 2);
  EXPECT_EQ(progress.complete, 1);
  EXPECT_EQ(progress.without_room, 1);
  EXPECT_EQ(progress.bytes, 5u);
  EXPECT_EQ(progress.total_bytes, 10u);
  EXPECT_TRUE(progress.sticky);
  PHALANX_ASSERT_OK(client_->StopBroadcast(Id(1)).Wait());
  EXPECT_FALSE(client_->Stat(Id(1)).Wait()->sticky);
  EXPECT_THAT(client_->ProgressOf(Id(2)).Wait(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ClientTest, ReplicateReturnsTheNumberOfHosts) {
  EXPECT_THAT(client_->Replicate(Id(1), 2).Wait(), StatusIs(absl::StatusCode::kNotFound));
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  EXPECT_EQ(client_->Stat(Id(1)).Wait()->copies_wanted, 0);
  PHALANX_ASSERT_OK_AND_ASSIGN(const int hosts, client_->Replicate(Id(1), 2).Wait());
  EXPECT_EQ(hosts, 1);
  PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStatus status, client_->Stat(Id(1)).Wait());
  EXPECT_EQ(status.copies_wanted, 2);
  EXPECT_EQ(status.copies_there, 1);
  for (const int copies : {0, -1, kMaxObjectCopies + 1}) {
    EXPECT_THAT(client_->Replicate(Id(1), copies).Wait(),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST_F(ClientTest, APutAsksForCopiesAndWaitsForThem) {
  PutOptions options;
  options.copies = 3;
  options.wait_for_copies = true;
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes", options).Wait());
  EXPECT_EQ(client_->Stat(Id(1)).Wait()->copies_wanted, 3);
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer buffer,
                               client_->Create(Id(2), size_t{2} << 20, options));
  PHALANX_ASSERT_OK(buffer.Seal().Wait());
  EXPECT_EQ(client_->Stat(Id(2)).Wait()->copies_wanted, 3);
  options.copies = 0;
  EXPECT_THAT(client_->Put(Id(3), "bytes", options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options.copies = kMaxObjectCopies + 1;
  EXPECT_THAT(client_->Put(Id(3), "bytes", options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ClientTest, TheEndOfAScopeFreesItsObjectsAndRefusesLatePutsAndGets) {
  PutOptions options;
  options.scope = {"job", 7};
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes", options).Wait());
  PHALANX_ASSERT_OK(client_->Put(Id(2), Content(size_t{2} << 20), options).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer kept, client_->Get(Id(2)).Wait());
  options.scope.number = 8;
  PHALANX_ASSERT_OK(client_->Put(Id(3), "later", options).Wait());
  GetOptions waits;
  waits.scope = {"job", 6};
  const Future<Buffer> waiting = client_->Get(Id(4), waits);
  PHALANX_ASSERT_OK(client_->EndScope({"job", 7}).Wait());
  EXPECT_FALSE(*client_->Contains(Id(1)).Wait());
  EXPECT_FALSE(*client_->Contains(Id(2)).Wait());
  EXPECT_TRUE(*client_->Contains(Id(3)).Wait());
  EXPECT_EQ(kept.view(), Content(size_t{2} << 20));
  const auto ended = HasSubstr("scope \"job\" 6 has ended");
  EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kNotFound, ended));
  EXPECT_THAT(client_->Get(Id(5), waits).Wait(), StatusIs(absl::StatusCode::kNotFound, ended));
  options.scope.number = 6;
  EXPECT_THAT(client_->Put(Id(1), "late", options).Wait(),
              StatusIs(absl::StatusCode::kNotFound, ended));
}

TEST_F(ClientTest, ABadScopeIsRefused) {
  PutOptions options;
  for (const std::string& name : {std::string(256, 'x'), std::string("a\nb")}) {
    options.scope.name = name;
    EXPECT_THAT(client_->Put(Id(1), "bytes", options).Wait(),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(client_->EndScope({name, 1}).Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(client_->EndScope(Scope()).Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
}

// The shard would treat such a name as an error of the node and end the node's session.
TEST_F(ClientTest, RejectsNodeNamesThatAreNotText) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  BroadcastOptions options;
  options.nodes = {"caf\xe9"};
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("caf\\xe9"));
  EXPECT_THAT(client_->Broadcast(Id(1), options).Wait(), refused);
  EXPECT_THAT(client_->ProgressOf(Id(1), options.nodes).Wait(), refused);
}

TEST_F(ClientTest, ABroadcastCanBeRepeatedOrDropped) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  BroadcastOptions options;
  options.nodes = {"absent"};
  const Future<int> broadcast = client_->Broadcast(Id(1), options);
  EXPECT_THAT(broadcast.Wait(absl::Milliseconds(1)), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(broadcast.ready());
  broadcast.Cancel();
  EXPECT_THAT(broadcast.Wait(), StatusIs(absl::StatusCode::kCancelled));
  options.timeout = absl::Milliseconds(1);
  EXPECT_THAT(client_->Broadcast(Id(1), options).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  options.nodes = {};
  EXPECT_THAT(client_->Broadcast(Id(1), options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options.nodes = {""};
  EXPECT_THAT(client_->Broadcast(Id(1), options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->ProgressOf(Id(1), {""}).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ClientTest, CancelEndsAGet) {
  const Future<Buffer> waiting = client_->Get(Id(1));
  waiting.Cancel();
  EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kCancelled));
  node_.Await([&] { return node_.store().stats().waiting_gets == 0; });
  const auto many = client_->GetMany(std::vector<ObjectId>{Id(1), Id(2)});
  many.Cancel();
  EXPECT_THAT(many.Wait(), StatusIs(absl::StatusCode::kCancelled));
  node_.Await([&] { return node_.store().stats().waiting_gets == 0; });
  waiting.Cancel();
}

TEST_F(ClientTest, ReturnsAGrantThatCrossesItsCancel) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), Content(2 << 20)).Wait());
  for (int i = 0; i < 100; ++i) client_->Get(Id(1)).Cancel();
  PHALANX_ASSERT_OK(client_->Get(Id(1)).Wait());
  ExpectNoPins();
}

TEST_F(ClientTest, DroppingAFutureDoesNotCancel) {
  client_->Put(Id(1), "bytes");
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer buffer, client_->Get(Id(1)).Wait());
  EXPECT_EQ(buffer.view(), "bytes");
}

TEST_F(ClientTest, NamesGiveTheSameIdInEveryClient) {
  EXPECT_EQ(client_->Id("weights"), ConnectTo(node_)->Id("weights"));
  EXPECT_EQ(client_->Id("weights"), ObjectId::FromName("default", "weights"));
  EXPECT_EQ(client_->node_name(), "node-a");
  EXPECT_EQ(client_->directory(), "127.0.0.1:7400");
  EXPECT_EQ(client_->address(), node_.address());
}

TEST_F(ClientTest, CloseEndsAllOutstandingCalls) {
  const Future<Buffer> waiting = client_->Get(Id(1));
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer writer, client_->Create(Id(2), 2 << 20));
  bool called = false;
  waiting.OnReady([&](const absl::StatusOr<Buffer>& result) {
    called = true;
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  });
  client_->Close();
  EXPECT_TRUE(called);
  EXPECT_THAT(waiting.Wait(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(client_->Put(Id(3), "x").Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(client_->Create(Id(3), 9).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer.Publish(10), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(writer.Seal().Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
  client_->Close();
  node_.Await([&] { return node_.service().stats().clients == 0; });
  EXPECT_EQ(node_.store_stats().objects, 0u);
}

TEST_F(ClientTest, AFutureWithoutACallReturnsAnError) {
  EXPECT_THAT(Future<Buffer>().Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(Future<Buffer>().ready());
}

// ---------------------------------------------------------------------------- times to live

TEST_F(ClientTest, RejectsATimeToLiveThatIsNotPositive) {
  PutOptions options;
  for (const absl::Duration ttl : {absl::ZeroDuration(), -absl::Seconds(1)}) {
    options.ttl = ttl;
    EXPECT_THAT(client_->Put(Id(1), "x", options).Wait(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("time to live")));
  }
  // So long that it is none.
  options.ttl = absl::Hours(24 * 365 * 200);
  PHALANX_ASSERT_OK(client_->Put(Id(1), "x", options).Wait());
  EXPECT_EQ(client_->Stat(Id(1)).Wait()->ttl, absl::InfiniteDuration());
}

// ---------------------------------------------------------------------------- names

TEST_F(ClientTest, AnObjectKeepsTheNameOfItsId) {
  const ObjectId id = client_->Id("job/7");
  PHALANX_ASSERT_OK(client_->Put(id, "x").Wait());
  const auto other = ConnectTo(node_);
  PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStatus status, other->Stat(id).Wait());
  EXPECT_EQ(status.name, "job/7");
  EXPECT_EQ(status.name_space, "default");
  const ObjectId large = client_->Id("batch", "large");
  EXPECT_EQ(large, ObjectId::FromName("batch", "large"));
  PHALANX_ASSERT_OK(client_->Put(large, Content(2 << 20)).Wait());
  EXPECT_EQ(other->Stat(large).Wait()->name, "large");
  EXPECT_EQ(other->Stat(large).Wait()->name_space, "batch");
}

TEST_F(ClientTest, AnObjectWhoseIdWasNotDerivedHasNoName) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "x").Wait());
  EXPECT_EQ(client_->Stat(Id(1)).Wait()->name, "");
  // The id is that of a name, but the name cannot be kept.
  const ObjectId id = client_->Id("two\nlines");
  PHALANX_ASSERT_OK(client_->Put(id, "x").Wait());
  EXPECT_EQ(client_->Stat(id).Wait()->name, "");
}

TEST_F(ClientTest, ErrorsShowNames) {
  const ObjectId id = client_->Id("job/7");
  const std::string shown = absl::StrCat("Get of \"job/7\" (", id.hex(), ") at unix:");
  GetOptions options;
  options.timeout = absl::ZeroDuration();
  EXPECT_THAT(client_->Get(id, options).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(shown)));
  // Refused before anything is sent.
  PutOptions bad;
  bad.slices = 0;
  EXPECT_THAT(client_->Put(id, "x", bad).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"job/7\" (")));
  // From inside another call: the name is there once.
  PHALANX_ASSERT_OK(client_->Put(id, Content(2 << 20)).Wait());
  const auto differs = client_->Put(id, Content(3 << 20)).Wait();
  EXPECT_THAT(differs, StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("\"job/7\" (")));
  EXPECT_EQ(std::string(differs.status().message()).find("(\"job/7\""), std::string::npos)
      << differs.status();
}

// ---------------------------------------------------------------------------- connecting

TEST(Connect, FailsIfNoNodeListens) {
  ClientOptions options;
  options.address = "unix:/tmp/phalanx.nobody.sock";
  EXPECT_THAT(Client::Connect(options).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("unix:/tmp/phalanx.nobody.sock"), HasSubstr("start one"))));
}

TEST(Connect, RejectsABadAddress) {
  ClientOptions options;
  options.address = "10.0.0.1:7400";
  EXPECT_THAT(Client::Connect(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10.0.0.1:7400")));
  options.address = "unix:" + std::string(200, 'x');
  EXPECT_THAT(Client::Connect(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("107")));
}

TEST(Connect, TheEnvironmentNamesTheNode) {
  LocalNode node;
  setenv("PHALANX_ADDRESS", node.address().c_str(), 1);
  const auto client = Client::Connect();
  unsetenv("PHALANX_ADDRESS");
  PHALANX_ASSERT_OK(client);
  EXPECT_EQ((*client)->address(), node.address());
}

TEST(Connect, AcceptsAPlainPath) {
  LocalNode node;
  ClientOptions options;
  options.address = node.socket();
  PHALANX_EXPECT_OK(Client::Connect(options));
}

}  // namespace
}  // namespace phalanx
