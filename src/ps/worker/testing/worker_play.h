// A WorkerCore, and servers that a test plays message by message. Testonly.
//
// Owned by a test. One thread.
#ifndef PHALANX_PS_WORKER_TESTING_WORKER_PLAY_H_
#define PHALANX_PS_WORKER_TESTING_WORKER_PLAY_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {

inline TableSpec SpecOf(std::string name, uint32_t snapshot_every = 10) {
  TableSpec spec;
  spec.name = std::move(name);
  spec.keys = 100;
  spec.dtype = spec.wire = DType::kI64;
  spec.snapshot_every = snapshot_every;
  return spec;
}

// A text for each entry that a server gets, with the position of a push, and its keys.
inline std::string Describe(const WorkerEntry& entry) {
  const auto keys = [](const WireKeys& keys) {
    switch (keys.form) {
      case WireKeys::Form::kList:
        return absl::StrCat("list of ", keys.keys.size());
      case WireKeys::Form::kRun:
        return absl::StrCat(keys.begin, "+", keys.count);
      case WireKeys::Form::kHash:
        return std::string("hash");
    }
    return std::string();
  };
  if (const auto* push = std::get_if<Push>(&entry)) {
    if (push->at.push == kAllPushes) return absl::StrCat("mark ", push->table, " ", push->at.clock);
    return absl::StrCat("push ", push->table, " at ", push->at.clock, ".", push->at.push, ".",
                        push->at.piece, " ",
                        push->object.empty() ? keys(push->keys) : std::string(push->object));
  }
  if (const auto* end = std::get_if<ClockEnd>(&entry)) {
    return absl::StrCat("clock ", end->table, " ", end->clock);
  }
  if (const auto* pull = std::get_if<Pull>(&entry)) {
    return absl::StrCat("pull ", pull->table, " at ", pull->clock, " ",
                        pull->object ? "as object" : keys(pull->keys));
  }
  if (const auto* read = std::get_if<Read>(&entry)) {
    return absl::StrCat(read->lost ? "lost " : "read ", read->table, " ", read->ticket, ".",
                        read->piece);
  }
  if (const auto* request = std::get_if<Request>(&entry)) {
    return absl::StrCat("request ", request->head, " ", request->body);
  }
  return absl::StrCat("snapshot ", std::get<AskSnapshot>(entry).table);
}

class WorkerPlay {
 public:
  explicit WorkerPlay(int servers, std::vector<TableSpec> specs, uint64_t life = 0,
                      uint64_t object_part_bytes = kObjectPartBytes, int workers = 1,
                      uint64_t batch_bytes = kBatchBytes)
      : core({.rank = 0,
              .life = life,
              .servers = servers,
              .workers = workers,
              .objects = "job",
              .object_part_bytes = object_part_bytes,
              .batch_bytes = batch_bytes}),
        specs_(std::move(specs)) {}

  // All servers begin their first life, and welcome the worker.
  void Begin(int servers) {
    for (int server = 0; server < servers; ++server) {
      core.OnServer(server, true, 1);
      Welcome(server, 1);
      Got(server);
    }
  }
  // Positions of the tables; the beginning for those that are not given.
  void Welcome(int server, uint64_t life, std::vector<Position> at = {},
               std::vector<Position> durable = {}) {
    internal::Welcome welcome{.channel = Hello(server)};
    for (size_t i = 0; i < specs_.size(); ++i) {
      internal::Welcome::Table table{.spec = specs_[i]};
      if (i < at.size()) table.at = at[i];
      if (i < durable.size()) table.durable = durable[i];
      table.clock = table.at.clock;
      welcome.tables.push_back(table);
    }
    core.OnMessage(server, life, Encode(welcome));
  }
  // The channel of the last Hello to the server.
  uint64_t Hello(int server) {
    Drain();
    return channel_[server];
  }
  void Answer(int server, uint64_t life, ServerEntry entry) {
    core.OnMessage(server, life, Encode(ServerBatch{Hello(server), {std::move(entry)}}));
  }
  // What the server gets, one text for each batch, since the last call of this.
  std::vector<std::string> Got(int server) {
    Drain();
    return std::exchange(got_[server], {});
  }
  // How the ticket has ended.
  absl::Status Taken(WorkerCore::Ticket ticket) {
    return core.Take(ticket).value_or(absl::UnavailableError("it has not ended"));
  }
  // What the last Hello to the server has said.
  std::vector<Position> Had(int server) {
    Drain();
    return had_[server];
  }
  std::map<int, internal::Pull> last_pull;  // by server

  // Calls with all their pieces.
  using Started = absl::StatusOr<WorkerCore::Ticket>;
  Started Push(uint32_t table, absl::Span<const Key> keys, const void* values,
               absl::Span<const int32_t> servers = {}) {
    return Make(
        {.table = table, .keys = keys, .servers = servers, .pushes = true, .values = values});
  }
  Started Pull(uint32_t table, absl::Span<const Key> keys, void* out,
               absl::Span<const int32_t> servers = {}) {
    return Make({.table = table, .keys = keys, .servers = servers, .pulls = true, .out = out});
  }
  Started PushPull(uint32_t table, absl::Span<const Key> keys, const void* values, void* out,
                   absl::Span<const int32_t> servers = {}) {
    return Make({.table = table,
                 .keys = keys,
                 .servers = servers,
                 .pushes = true,
                 .values = values,
                 .pulls = true,
                 .out = out});
  }
  Started Make(const WorkerCore::Rows& rows) {
    const Started ticket = core.Start(rows);
    while (core.Cut()) {
    }
    return ticket;
  }

  WorkerCore core;

 private:
  void Drain() {
    for (const WorkerCore::Send& send : core.TakeSends()) {
      const auto message = DecodeWorkerMessage(send.bytes);
      ASSERT_THAT(message, ::phalanx::testing::IsOk());
      if (const auto* hello = std::get_if<internal::Hello>(&*message)) {
        channel_[send.server] = hello->channel;
        had_[send.server] = hello->had;
        got_[send.server].push_back(absl::StrCat("hello to ", send.life));
        continue;
      }
      const auto& batch = std::get<WorkerBatch>(*message);
      EXPECT_EQ(batch.channel, channel_[send.server]);
      std::string text;
      for (const WorkerEntry& entry : batch.entries) {
        absl::StrAppend(&text, text.empty() ? "" : "; ", Describe(entry));
        if (const auto* pull = std::get_if<internal::Pull>(&entry)) last_pull[send.server] = *pull;
      }
      got_[send.server].push_back(text);
    }
  }

  std::vector<TableSpec> specs_;
  std::map<int, uint64_t> channel_;
  std::map<int, std::vector<Position>> had_;
  std::map<int, std::vector<std::string>> got_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_WORKER_TESTING_WORKER_PLAY_H_
