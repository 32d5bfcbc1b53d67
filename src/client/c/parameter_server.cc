// Parameter servers: servers, workers and their tables.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "phalanx/ps.h"
#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::Report;

namespace ps = phalanx::ps;

// What an own update is given beside the push; both end with the call.
struct phx_ps_rows {
  ps::internal::Part& part;
  const absl::Span<const ps::Key> keys;
  const uint32_t width;
  const size_t element;  // its size
  std::string error;
};

struct phx_ps_reply {
  ps::Reply reply;
};

namespace {

static_assert(PHX_PS_BSP == static_cast<int>(ps::Sync::kBsp) &&
              PHX_PS_SSP == static_cast<int>(ps::Sync::kSsp) &&
              PHX_PS_ASP == static_cast<int>(ps::Sync::kAsp));
static_assert(PHX_PS_SPLIT_RANGE == static_cast<int>(ps::Split::kRange) &&
              PHX_PS_SPLIT_HASH == static_cast<int>(ps::Split::kHash) &&
              PHX_PS_SPLIT_BLOCKS == static_cast<int>(ps::Split::kBlocks) &&
              PHX_PS_SPLIT_OWN == static_cast<int>(ps::Split::kOwn));
static_assert(PHX_PS_ASSIGN == static_cast<int>(ps::Update::kAssign) &&
              PHX_PS_SUM == static_cast<int>(ps::Update::kSum) &&
              PHX_PS_SGD == static_cast<int>(ps::Update::kSgd) &&
              PHX_PS_MOMENTUM == static_cast<int>(ps::Update::kMomentum) &&
              PHX_PS_ADAGRAD == static_cast<int>(ps::Update::kAdagrad) &&
              PHX_PS_FTRL == static_cast<int>(ps::Update::kFtrl) &&
              PHX_PS_OWN == static_cast<int>(ps::Update::kOwn));
static_assert(PHX_PS_ZEROS == static_cast<int>(ps::Init::kZeros) &&
              PHX_PS_UNIFORM == static_cast<int>(ps::Init::kUniform) &&
              PHX_PS_NORMAL == static_cast<int>(ps::Init::kNormal));
static_assert(PHX_PS_LOSS_WAIT == static_cast<int>(ps::OnLoss::kWait) &&
              PHX_PS_LOSS_DROP == static_cast<int>(ps::OnLoss::kDrop) &&
              PHX_PS_LOSS_FAIL == static_cast<int>(ps::OnLoss::kFail));
static_assert(PHX_PS_WORKERS == static_cast<int>(ps::BarrierGroup::kWorkers) &&
              PHX_PS_SERVERS == static_cast<int>(ps::BarrierGroup::kServers) &&
              PHX_PS_ALL == static_cast<int>(ps::BarrierGroup::kAll));

// C callers can leave out names.
std::string Text(const char* text) { return text == nullptr ? "" : text; }

absl::string_view View(const void* bytes, uint64_t size) {
  return absl::string_view(static_cast<const char*>(bytes), size);
}

// Zero is "not given" in C, where C++ has the defaults of the struct.
ps::Options OptionsOf(const phx_ps_options* given) {
  ps::Options to;
  if (given == nullptr) return to;
  to.job = Text(given->job);
  to.task = Text(given->task);
  to.world = given->world;
  if (!Text(given->server_role).empty()) to.server_role = given->server_role;
  if (!Text(given->worker_role).empty()) to.worker_role = given->worker_role;
  to.await_workers = given->await_workers != 0;
  if (given->peer_timeout != 0) to.peer_timeout = DurationOf(given->peer_timeout);
  to.checkpoint_dir = Text(given->checkpoint_dir);
  return to;
}

// A number that is none of an enumeration becomes another one that is none of it, and Check names
// the field.
template <typename Enum>
Enum EnumOf(int number) {
  return static_cast<Enum>(std::clamp(number, -1, 254) & 0xFF);
}

ps::TableSpec SpecOf(const phx_ps_table_spec& from) {
  ps::TableSpec to;
  to.name = Text(from.name);
  to.keys = from.keys;
  to.width = from.width;
  to.lengths = from.lengths != 0;
  to.dtype = EnumOf<phalanx::DType>(from.dtype);
  to.wire = EnumOf<phalanx::DType>(from.wire);
  to.sync = EnumOf<ps::Sync>(from.sync);
  to.staleness = from.staleness;
  to.split = EnumOf<ps::Split>(from.split);
  to.block = from.block;
  to.update = EnumOf<ps::Update>(from.update);
  to.rate = from.rate;
  to.momentum = from.momentum;
  to.epsilon = from.epsilon;
  to.beta = from.beta;
  to.l1 = from.l1;
  to.l2 = from.l2;
  to.init = EnumOf<ps::Init>(from.init);
  to.scale = from.scale;
  to.seed = from.seed;
  to.on_loss = EnumOf<ps::OnLoss>(from.on_loss);
  to.snapshot_every = from.snapshot_every;
  to.copies = from.copies;
  to.snapshot_bytes = from.snapshot_bytes;
  return to;
}

// The name is that of `from`.
void CopySpec(const ps::TableSpec& from, phx_ps_table_spec* to) {
  *to = {.name = from.name.c_str(),
         .keys = from.keys,
         .width = from.width,
         .lengths = from.lengths ? 1 : 0,
         .dtype = static_cast<int>(from.dtype),
         .wire = static_cast<int>(from.wire),
         .sync = static_cast<int>(from.sync),
         .staleness = from.staleness,
         .split = static_cast<int>(from.split),
         .block = from.block,
         .update = static_cast<int>(from.update),
         .rate = from.rate,
         .momentum = from.momentum,
         .epsilon = from.epsilon,
         .beta = from.beta,
         .l1 = from.l1,
         .l2 = from.l2,
         .init = static_cast<int>(from.init),
         .scale = from.scale,
         .seed = from.seed,
         .on_loss = static_cast<int>(from.on_loss),
         .snapshot_every = from.snapshot_every,
         .copies = from.copies,
         .snapshot_bytes = from.snapshot_bytes};
}

ps::BarrierOptions BarrierOf(const phx_ps_barrier_options* given) {
  ps::BarrierOptions to;
  if (given == nullptr) return to;
  if (given->has_epoch != 0) to.epoch = given->epoch;
  if (given->timeout != 0) to.timeout = DurationOf(given->timeout);
  return to;
}

// The error of a function of the program.
absl::Status ErrorOf(int code, absl::string_view text) {
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kInternal,
                      text.empty() ? "a function of the program has failed" : text);
}

ps::Server::OwnUpdate UpdateOf(phx_ps_update update, void* argument, const ps::TableSpec& spec) {
  const uint32_t width = spec.width;
  const size_t element = phalanx::ElementSize(spec.dtype);
  const bool with_lengths = spec.lengths;
  return [=](const ps::Pusher& from, absl::Span<const ps::Key> keys, const void* values,
             absl::Span<const uint32_t> lengths, ps::internal::Part& part) {
    const phx_ps_push push = {.worker = from.worker,
                              .clock = from.clock,
                              .life = from.life,
                              .keys = keys.data(),
                              .values = values,
                              .count = keys.size(),
                              .lengths = with_lengths ? lengths.data() : nullptr};
    phx_ps_rows rows{part, keys, width, element, {}};
    const int code = update(argument, &push, &rows);
    return code == 0 ? absl::OkStatus() : ErrorOf(code, rows.error);
  };
}

}  // namespace

void phx_ps_table_defaults(phx_ps_table_spec* spec) {
  CopySpec({}, spec);
  spec->name = nullptr;
}

// ---- functions of the program

namespace {

// The rows of the batch, if they lie one behind the other; else null.
char* RunOf(const phx_ps_rows& rows) {
  const ps::internal::RowRun run = ps::internal::RunOf(rows.part);
  if (rows.keys.empty()) return nullptr;
  const ps::Key first = rows.keys.front(), last = rows.keys.back();
  const bool one_run = last - first == rows.keys.size() - 1 && first - run.first < run.keys &&
                       last - run.first < run.keys;
  if (!one_run) return nullptr;
  return static_cast<char*>(run.values) + (first - run.first) * rows.width * rows.element;
}

size_t RunBytes(const phx_ps_rows& rows) { return rows.keys.size() * rows.width * rows.element; }

}  // namespace

void* phx_ps_row(phx_ps_rows* rows, uint64_t key) {
  return ps::internal::RowOf(rows->part, key).values;
}

uint32_t phx_ps_row_length(phx_ps_rows* rows, uint64_t key) {
  return ps::internal::RowOf(rows->part, key).length;
}

void* phx_ps_row_resize(phx_ps_rows* rows, uint64_t key, uint32_t length) {
  return ps::internal::ResizeRow(rows->part, key, length).values;
}

void phx_ps_rows_lengths(phx_ps_rows* rows, uint32_t* lengths) {
  for (const ps::Key key : rows->keys) *lengths++ = phx_ps_row_length(rows, key);
}

void phx_ps_rows_read(phx_ps_rows* rows, void* values) {
  auto* to = static_cast<char*>(values);
  if (const char* const run = RunOf(*rows); run != nullptr) {
    std::memcpy(to, run, RunBytes(*rows));
    return;
  }
  for (const ps::Key key : rows->keys) {
    const ps::internal::RowValues row = ps::internal::RowOf(rows->part, key);
    to = std::copy_n(static_cast<const char*>(row.values), row.length * rows->element, to);
  }
}

void phx_ps_rows_write(phx_ps_rows* rows, const void* values) {
  const auto* from = static_cast<const char*>(values);
  if (char* const run = RunOf(*rows); run != nullptr) {
    std::memcpy(run, from, RunBytes(*rows));
    return;
  }
  for (const ps::Key key : rows->keys) {
    const ps::internal::RowValues row = ps::internal::RowOf(rows->part, key);
    const size_t bytes = row.length * rows->element;
    std::copy_n(from, bytes, static_cast<char*>(row.values));
    from += bytes;
  }
}

void phx_ps_rows_error(phx_ps_rows* rows, const char* text, size_t size) {
  rows->error.assign(text, size);
}

void phx_ps_reply_set(phx_ps_reply* reply, int32_t head, const void* body, uint64_t size) {
  reply->reply = {head, std::string(View(body, size))};
}

// ---- servers

phx_ps_server* phx_ps_server_join(phx_client* client, const phx_ps_options* options) {
  absl::StatusOr<ps::Server> server = ps::Server::Join(*client->client, OptionsOf(options));
  if (Report(server.status()) != 0) return nullptr;
  return new phx_ps_server{*std::move(server)};
}

int phx_ps_server_rank(const phx_ps_server* server) { return server->server.rank(); }
int phx_ps_server_servers(const phx_ps_server* server) { return server->server.servers(); }
uint64_t phx_ps_server_life(const phx_ps_server* server) { return server->server.life(); }

int phx_ps_server_add_table(phx_ps_server* server, const phx_ps_table_spec* spec,
                            phx_ps_update update, void* argument) {
  const ps::TableSpec table = SpecOf(*spec);
  if (update == nullptr) return Report(server->server.AddTable(table));
  const absl::Status checked = ps::Check(table);
  if (!checked.ok()) return Report(checked);
  return Report(server->server.AddTableWith(table, UpdateOf(update, argument, table)));
}

void phx_ps_server_on_request(phx_ps_server* server, phx_ps_answer answer, void* argument) {
  server->server.OnRequest(
      [answer, argument](const ps::RequestInfo& request) -> absl::StatusOr<ps::Reply> {
        phx_ps_reply reply;
        const int code = answer(argument, request.worker, request.head, request.body.data(),
                                request.body.size(), &reply);
        if (code != 0) return ErrorOf(code, reply.reply.body);
        return std::move(reply.reply);
      });
}

void phx_ps_server_on_unsaved(phx_ps_server* server, phx_ps_unsaved unsaved, void* argument) {
  server->server.OnUnsaved([unsaved, argument](absl::string_view table, const absl::Status& why) {
    unsaved(argument, std::string(table).c_str(), std::string(why.message()).c_str());
  });
}

int phx_ps_server_run(phx_ps_server* server) { return Report(server->server.Run()); }
void phx_ps_server_stop(phx_ps_server* server) { server->server.Stop(); }
void phx_ps_server_drop(phx_ps_server* server) { server->server.Drop(); }
void phx_ps_server_finish(phx_ps_server* server) { server->server.Finish(); }

phx_call* phx_ps_server_barrier(phx_ps_server* server, int group,
                                const phx_ps_barrier_options* options) {
  return Handle(server->server.BarrierAsync(EnumOf<ps::BarrierGroup>(group), BarrierOf(options)));
}

size_t phx_ps_server_describe(const phx_ps_server* server, char* text, size_t room) {
  const std::string description = server->server.Describe();
  if (room > 0) text[description.copy(text, room - 1)] = 0;
  return description.size();
}

int64_t phx_ps_server_list(const phx_ps_server* server, const char* role, phx_member_info* infos,
                           size_t n) {
  return phalanx::c::ListMembers(server->server.Members(Text(role)), infos, n);
}

void phx_ps_server_free(phx_ps_server* server) { delete server; }

// ---- workers

phx_ps_worker* phx_ps_worker_join(phx_client* client, const phx_ps_options* options) {
  absl::StatusOr<ps::Worker> worker = ps::Worker::Join(*client->client, OptionsOf(options));
  if (Report(worker.status()) != 0) return nullptr;
  return new phx_ps_worker{*std::move(worker)};
}

int phx_ps_worker_rank(const phx_ps_worker* worker) { return worker->worker.rank(); }
int phx_ps_worker_workers(const phx_ps_worker* worker) { return worker->worker.workers(); }
int phx_ps_worker_servers(const phx_ps_worker* worker) { return worker->worker.servers(); }
uint64_t phx_ps_worker_life(const phx_ps_worker* worker) { return worker->worker.life(); }
int phx_ps_worker_status(const phx_ps_worker* worker) { return Report(worker->worker.status()); }

phx_ps_table* phx_ps_worker_open(phx_ps_worker* worker, const char* name) {
  absl::StatusOr<ps::AnyTable> table = worker->worker.Open(Text(name));
  if (Report(table.status()) != 0) return nullptr;
  return new phx_ps_table{*std::move(table)};
}

phx_ps_table* phx_ps_worker_open_sliced(phx_ps_worker* worker, const char* name,
                                        phx_ps_slicer slicer, void* argument) {
  ps::Slicer function;
  if (slicer != nullptr) {
    function = [slicer, argument](absl::Span<const ps::Key> keys, absl::Span<int32_t> servers) {
      const int code = slicer(argument, keys.data(), keys.size(), servers.data());
      return code == 0 ? absl::OkStatus() : ErrorOf(code, "");
    };
  }
  absl::StatusOr<ps::AnyTable> table = worker->worker.Open(Text(name), std::move(function));
  if (Report(table.status()) != 0) return nullptr;
  return new phx_ps_table{*std::move(table)};
}

phx_call* phx_ps_worker_request(phx_ps_worker* worker, int server, int32_t head, const void* body,
                                uint64_t size) {
  return Handle(worker->worker.Request(server, head, View(body, size)));
}

phx_call* phx_ps_worker_barrier(phx_ps_worker* worker, int group,
                                const phx_ps_barrier_options* options) {
  return Handle(worker->worker.BarrierAsync(EnumOf<ps::BarrierGroup>(group), BarrierOf(options)));
}

int64_t phx_ps_worker_list(const phx_ps_worker* worker, const char* role, phx_member_info* infos,
                           size_t n) {
  return phalanx::c::ListMembers(worker->worker.Members(Text(role)), infos, n);
}

int phx_ps_worker_leave(phx_ps_worker* worker) { return Report(worker->worker.Leave()); }
int phx_ps_worker_quit(phx_ps_worker* worker) { return Report(worker->worker.Quit()); }
int phx_ps_worker_fail(phx_ps_worker* worker) { return Report(worker->worker.Fail()); }
void phx_ps_worker_free(phx_ps_worker* worker) { delete worker; }

// ---- tables

void phx_ps_table_spec_of(const phx_ps_table* table, phx_ps_table_spec* spec) {
  CopySpec(table->table.spec(), spec);
}

void phx_ps_table_clocks(const phx_ps_table* table, uint64_t* own, uint64_t* least) {
  *own = table->table.clock();
  *least = table->table.min_clock();
}

phx_call* phx_ps_push_rows(phx_ps_table* table, const uint64_t* keys, size_t n, const void* values,
                           uint64_t bytes) {
  return Handle(table->table.Push({keys, n}, values, bytes));
}

phx_call* phx_ps_pull_rows(phx_ps_table* table, const uint64_t* keys, size_t n, void* out,
                           uint64_t bytes) {
  return Handle(table->table.Pull({keys, n}, out, bytes));
}

phx_call* phx_ps_push_pull_rows(phx_ps_table* table, const uint64_t* keys, size_t n,
                                const void* values, void* out, uint64_t bytes) {
  return Handle(table->table.PushPull({keys, n}, values, out, bytes));
}

phx_call* phx_ps_push_lengths(phx_ps_table* table, const uint64_t* keys, size_t n,
                              const void* values, uint64_t bytes, const uint32_t* lengths) {
  return Handle(table->table.Push({keys, n}, values, bytes, {lengths, n}));
}

phx_call* phx_ps_pull_lengths(phx_ps_table* table, const uint64_t* keys, size_t n) {
  return Handle(table->table.Pull({keys, n}));
}

phx_call* phx_ps_push_pull_lengths(phx_ps_table* table, const uint64_t* keys, size_t n,
                                   const void* values, uint64_t bytes, const uint32_t* lengths) {
  return Handle(table->table.PushPull({keys, n}, values, bytes, {lengths, n}));
}

phx_call* phx_ps_push_dense(phx_ps_table* table, const void* values, uint64_t bytes) {
  return Handle(table->table.PushDense(values, bytes));
}

phx_call* phx_ps_push_dense_within(phx_ps_table* table, const void* values, uint64_t bytes,
                                   int64_t timeout) {
  absl::StatusOr<phalanx::Future<phalanx::Done>> pushed =
      table->table.PushDenseWithin(values, bytes, DurationOf(timeout));
  return Report(pushed.status()) == 0 ? Handle(*std::move(pushed)) : nullptr;
}

phx_call* phx_ps_pull_dense(phx_ps_table* table, void* out, uint64_t bytes) {
  return Handle(table->table.PullDense(out, bytes));
}

int phx_ps_table_await_room(const phx_ps_table* table, int64_t timeout) {
  return Report(table->table.AwaitRoom(DurationOf(timeout)));
}

int phx_ps_clock(phx_ps_table* table) { return Report(table->table.Clock()); }
uint64_t phx_ps_table_skip_pushed(phx_ps_table* table) { return table->table.SkipPushed(); }
void phx_ps_table_free(phx_ps_table* table) { delete table; }
