#include "src/sim/cluster/sim_client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/sim/cluster/content.h"

namespace phalanx::sim {

using object_store::MemoryBlock;
using object_store::PutResult;
using object_store::RequestId;
using object_store::View;
using object_store::WriteGrant;
using object_store::WriterId;

struct SimClient::OpenView {
  ObjectId id;
  Generation generation;
  uint64_t attempt = 0;
  // The streaming Get that still reads it; 0 if there is none.
  uint64_t operation = 0;
  bool has_memory = false;
  std::weak_ptr<MemoryBlock> block;
  std::weak_ptr<net::TransferBuffer> buffer;
  absl::Span<const char> bytes;
  SliceLayout layout;
  // By slice: the number of bytes that were read.
  std::vector<uint64_t> seen;
  net::TransferBuffer::SubscriptionId subscription = 0;
};

SimClient::SimClient(const NodeKey& node, object_store::Store& store, Executor& control,
                     const SimScheduler& scheduler, History& history)
    : node_(node),
      store_(store),
      control_(control),
      scheduler_(scheduler),
      history_(history),
      id_(store.OpenClient()) {}

SimClient::~SimClient() { LoseEverything(); }

// Pending requests will not be answered: their outcome is unknown.
void SimClient::LoseEverything() {
  for (const auto& [operation, attempt] : attempts_) {
    Attempt& lost = history_.attempt(attempt);
    // Only open attempts: an answer stays true.
    if (lost.state == AttemptState::kOpen) lost.state = AttemptState::kUnknown;
  }
  for (const auto& [writer_id, writer] : writers_) {
    // The node drops unsealed objects, but other nodes can have got all bytes already.
    history_.attempt(writer.attempt).state = AttemptState::kUnknown;
  }
  for (const uint64_t operation : operations_) {
    history_.Drop(operation, Operation::State::kLost);
  }
  attempts_.clear();
  writers_.clear();
  operations_.clear();
}

uint64_t SimClient::Begin(absl::string_view what, const ObjectId& id, absl::Duration timeout) {
  const uint64_t number =
      history_.BeginOperation(what, id, node_, scheduler_.now() + timeout).number;
  operations_.insert(number);
  return number;
}

void SimClient::End(uint64_t operation, const absl::Status& status) {
  history_.End(operation, status);
  operations_.erase(operation);
  requests_.erase(operation);
  attempts_.erase(operation);
  streams_.erase(operation);
  shares_.erase(operation);
}

// ------------------------------------------------------------------------------------- writing

object_store::PutOptions SimClient::OptionsOf(const PutShape& shape, const Attempt& attempt) const {
  object_store::PutOptions options;
  options.id = shape.id;
  options.metadata = attempt.metadata;
  options.slices = shape.slices;
  options.name = history_.ObjectNameOf(shape.id);
  options.wait_for_adoption = shape.wait_for_adoption;
  options.deadline = After(shape.timeout);
  return options;
}

uint64_t SimClient::Put(const PutShape& shape) {
  Attempt& attempt =
      history_.Begin(shape.id, shape.size_bytes, shape.slices, shape.metadata_bytes, node_);
  // A Put hands over all bytes at once, so complete views can show it before the answer.
  attempt.sealing = true;
  const uint64_t number = attempt.number;
  const uint64_t operation =
      Begin(absl::StrCat("put attempt ", number, " of ", shape.size_bytes, " bytes",
                         shape.wait_for_adoption ? ", adopted" : ""),
            shape.id, shape.timeout);
  attempts_[operation] = number;
  store_.Put(
      id_, OptionsOf(shape, attempt), ContentOf(number, shape.size_bytes),
      [this, operation, number, waited = shape.wait_for_adoption](
          const absl::StatusOr<PutResult>& result) { PutDone(operation, number, waited, result); });
  return operation;
}

uint64_t SimClient::Create(const PutShape& shape) {
  Attempt& attempt =
      history_.Begin(shape.id, shape.size_bytes, shape.slices, shape.metadata_bytes, node_);
  // From the start: the checkers must know that readers can see its bytes before the seal.
  attempt.written = attempt.unsealed = true;
  const uint64_t number = attempt.number;
  const uint64_t operation = Begin(absl::StrCat("create attempt ", number, " of ", shape.size_bytes,
                                                " bytes in ", shape.slices, " slices"),
                                   shape.id, shape.timeout);
  attempts_[operation] = number;
  requests_[operation] =
      store_.Create(id_, OptionsOf(shape, attempt), shape.size_bytes,
                    [this, operation, number](absl::StatusOr<WriteGrant> result) {
                      CreateDone(operation, number, std::move(result));
                    });
  return operation;
}

void SimClient::CreateDone(uint64_t operation, uint64_t number, absl::StatusOr<WriteGrant> result) {
  End(operation, result.status());
  Attempt& attempt = history_.attempt(number);
  if (!result.ok()) {
    // The store announced nothing to the directory.
    attempt.state = AttemptState::kFailed;
    return;
  }
  history_.Bind(attempt, result->generation);
  // An empty object is complete as soon as it exists.
  attempt.sealing = attempt.size_bytes == 0;
  Writer writer;
  writer.attempt = number;
  writer.id = result->writer;
  writer.size_bytes = attempt.size_bytes;
  if (writer.size_bytes > 0) {
    writer.block = result->block;
    writer.bytes = result->block->bytes().data();
    if (result->block->bytes().size() != writer.size_bytes) {
      history_.journal().Violation("a writer was given memory of another size");
    }
  }
  writers_.emplace(writer.id, std::move(writer));
}

void SimClient::Write(Writer& writer, uint64_t bytes) {
  bytes = std::min(bytes, writer.size_bytes - writer.written);
  if (bytes == 0) return;
  // The client has only a weak reference, so it notices pages that the store gave back.
  if (writer.block.expired()) {
    history_.journal().Violation(
        absl::StrCat("the memory of attempt ", writer.attempt, " went while it was written"));
    return;
  }
  FillContent(writer.attempt, writer.written, absl::MakeSpan(writer.bytes + writer.written, bytes));
  writer.written += bytes;
  // All bytes are final from here on, so other nodes can have a complete copy before the seal.
  if (writer.written == writer.size_bytes) history_.attempt(writer.attempt).sealing = true;
  history_.journal().Note(node_.ToString(), " publishes ", writer.written, " of attempt ",
                          writer.attempt);
  history_.journal().Violation("Publish", store_.Publish(id_, writer.id, writer.written));
}

uint64_t SimClient::Seal(WriterId id, bool wait_for_adoption) {
  Writer& writer = writers_.at(id);
  Write(writer, writer.size_bytes);
  const uint64_t number = writer.attempt;
  Attempt& attempt = history_.attempt(number);
  // Before the call, because the answer can come from within it.
  attempt.sealing = true;
  attempt.unsealed = false;
  writers_.erase(id);
  const uint64_t operation =
      Begin(absl::StrCat("seal attempt ", number, wait_for_adoption ? ", adopted" : ""), attempt.id,
            absl::InfiniteDuration());
  attempts_[operation] = number;
  store_.Seal(
      id_, id, wait_for_adoption,
      [this, operation, number, wait_for_adoption](const absl::StatusOr<PutResult>& result) {
        PutDone(operation, number, wait_for_adoption, result);
      });
  return operation;
}

void SimClient::Abort(WriterId id) {
  const uint64_t number = writers_.at(id).attempt;
  writers_.erase(id);
  history_.attempt(number).state = AttemptState::kFailed;
  history_.journal().Note(node_.ToString(), " aborts attempt ", number);
  history_.journal().Violation("Abort", store_.Abort(id_, id));
}

void SimClient::PutDone(uint64_t operation, uint64_t number, bool waited,
                        const absl::StatusOr<PutResult>& result) {
  End(operation, result.status());
  Attempt& attempt = history_.attempt(number);
  if (!result.ok()) return PutFailed(attempt, result.status());
  // Also OK, but readers must never see the dropped bytes.
  if (result->already_existed) {
    attempt.state = AttemptState::kDropped;
    history_.journal().Note("attempt ", number, " existed as ", result->generation.ToString());
    return;
  }
  attempt.state = AttemptState::kAcknowledged;
  history_.Bind(attempt, result->generation);
  if (waited) history_.CheckAdoptedAnswer(attempt);
}

void SimClient::PutFailed(Attempt& attempt, const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kAlreadyExists:
      attempt.state = AttemptState::kDropped;
      break;
    case absl::StatusCode::kResourceExhausted:
      // Only a Put fails for lack of memory. A Seal has its memory already.
      attempt.state = AttemptState::kFailed;
      attempt.sealing = false;
      break;
    // The shard can still adopt the object, or have adopted it.
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kNotFound:
      attempt.state = AttemptState::kUnknown;
      break;
    default:
      history_.journal().Violation(absl::StrCat("attempt ", attempt.number), why);
  }
}

// ------------------------------------------------------------------------------------- reading

uint64_t SimClient::Get(const ObjectId& id, absl::Duration timeout, bool streaming,
                        const ObjectId& near) {
  const uint64_t operation = Begin(streaming ? "stream" : "get", id, timeout);
  history_.operation(operation).read = true;
  history_.operation(operation).streaming = streaming;
  object_store::GetOptions options;
  options.id = id;
  options.deadline = After(timeout);
  options.streaming = streaming;
  options.near = near;
  options.name = history_.ObjectNameOf(id);
  object_store::GetEvents events;
  events.on_view = [this, operation, streaming](absl::StatusOr<View> result) {
    OnView(operation, streaming, std::move(result));
  };
  events.on_void = [this, operation](const absl::Status& why) { OnVoid(operation, why); };
  requests_[operation] = store_.Get(id_, std::move(options), std::move(events));
  return operation;
}

uint64_t SimClient::ReadUntil(const ObjectId& id, absl::Duration timeout, double share) {
  const uint64_t operation = Get(id, timeout, /*streaming=*/true);
  shares_[operation] = share;
  return operation;
}

void SimClient::OnView(uint64_t operation, bool streaming, absl::StatusOr<View> result) {
  if (const auto it = streams_.find(operation); it != streams_.end()) {
    history_.journal().Violation(
        absl::StrCat("#", operation, " was given another view before the first was void"));
  }
  if (!result.ok()) {
    // Recorded now: the pins can be gone when the checker looks at this error.
    history_.operation(operation).pinned_bytes = store_.stats().pinned_bytes;
    return End(operation, result.status());
  }
  AddView(operation, streaming, *result);
}

void SimClient::AddView(uint64_t operation, bool streaming, const View& view) {
  const ObjectId id = history_.operation(operation).id;
  const uint64_t attempt =
      history_.Identify(id, view.generation, view.metadata, view.buffer->layout().object_bytes);
  OpenView open;
  open.id = id;
  open.generation = view.generation;
  open.attempt = attempt;
  open.has_memory = view.block != nullptr;
  open.block = view.block;
  open.buffer = view.buffer;
  open.layout = view.buffer->layout();
  if (open.has_memory) open.bytes = view.block->bytes();
  // Bytes below `seen` were checked once; samples check them again.
  open.seen.assign(static_cast<size_t>(open.layout.slices), 0);
  if (!streaming && !view.buffer->complete()) {
    history_.journal().Violation(absl::StrCat("#", operation, " was shown an incomplete copy"));
  }
  for (int i = 0; i < open.layout.slices; ++i) {
    open.seen[static_cast<size_t>(i)] = view.buffer->watermark(i);
  }
  // All bytes that are visible now are checked at once; later ones when they arrive.
  CheckView(view.pin, open, true);
  history_.journal().Note("#", operation, " sees attempt ", attempt, " (",
                          view.buffer->bytes_present(), " bytes)");
  const bool over = !streaming || (view.buffer->closed() && view.buffer->close_status().ok());
  history_.RecordView(operation, attempt, over);
  if (over) {
    End(operation, absl::OkStatus());
  } else {
    open.operation = operation;
    streams_[operation] = view.pin;
  }
  views_.emplace(view.pin, std::move(open));
  // After the view is in the table: both can end the operation and release the pin.
  if (!over && !EndIfEnough(view.pin)) Follow(view.pin);
}

bool SimClient::EndIfEnough(PinId pin) {
  const OpenView& view = views_.at(pin);
  const auto share = shares_.find(view.operation);
  if (share == shares_.end()) return false;
  for (int i = 0; i < view.layout.slices; ++i) {
    const double wanted = static_cast<double>(view.layout.Size(i)) * share->second;
    if (static_cast<double>(view.seen[static_cast<size_t>(i)]) < wanted) return false;
  }
  shares_.erase(share);
  Release(pin, /*recycle=*/true);
  return true;
}

// Waits for more bytes of a streamed view.
void SimClient::Follow(PinId pin) {
  OpenView& view = views_.at(pin);
  const auto buffer = view.buffer.lock();
  if (buffer == nullptr) return;
  const uint64_t all = AllSlices(view.layout.slices);
  uint64_t missing = 0;
  for (int i = 0; i < view.layout.slices; ++i) {
    if (view.seen[static_cast<size_t>(i)] < view.layout.Size(i)) missing |= uint64_t{1} << i;
  }
  view.subscription = buffer->Subscribe(missing & all, view.seen, control_, [this, pin] {
    // The subscription has ended with this call, so Release must not end it again.
    views_.at(pin).subscription = 0;
    ReadOn(pin);
  });
}

void SimClient::ReadOn(PinId pin) {
  OpenView& view = views_.at(pin);
  const auto buffer = view.buffer.lock();
  if (buffer == nullptr || view.operation == 0) return;
  for (int i = 0; i < view.layout.slices; ++i) {
    uint64_t& seen = view.seen[static_cast<size_t>(i)];
    const uint64_t to = buffer->watermark(i);
    if (!CheckSlice(pin, view, i, seen, to)) return;
    seen = to;
  }
  if (EndIfEnough(pin)) return;
  if (!buffer->closed()) return Follow(pin);
  // The copy failed: the store will call on_void.
  if (!buffer->close_status().ok()) return;
  if (!buffer->complete()) {
    history_.journal().Violation(absl::StrCat("pin ", pin, ": closed with bytes missing"));
  }
  const uint64_t operation = std::exchange(view.operation, 0);
  history_.RecordView(operation, view.attempt, true);
  End(operation, absl::OkStatus());
}

void SimClient::OnVoid(uint64_t operation, const absl::Status& why) {
  // The release and the void crossed. Without the cancel, the stream would get another view.
  if (const auto it = let_go_.find(operation); it != let_go_.end()) {
    store_.Cancel(id_, it->second);
    let_go_.erase(it);
    return;
  }
  const auto it = streams_.find(operation);
  if (it == streams_.end()) {
    history_.journal().Violation(absl::StrCat("#", operation, " is void without a view"));
    return;
  }
  history_.journal().Note("#", operation, " void: ", why.ToString());
  views_.at(it->second).operation = 0;
  streams_.erase(it);
}

void SimClient::Cancel(uint64_t operation) {
  const RequestId request = requests_.at(operation);
  // The client keeps the view of a cancelled stream, and releases it later.
  if (const auto it = streams_.find(operation); it != streams_.end()) {
    views_.at(it->second).operation = 0;
  }
  if (const auto it = attempts_.find(operation); it != attempts_.end()) {
    // A cancelled Create has announced nothing.
    history_.attempt(it->second).state = AttemptState::kFailed;
  }
  // Before the call: an answer after this is a violation.
  history_.Drop(operation, Operation::State::kCancelled);
  operations_.erase(operation);
  requests_.erase(operation);
  attempts_.erase(operation);
  streams_.erase(operation);
  store_.Cancel(id_, request);
}

void SimClient::Release(PinId pin, bool recycle) {
  OpenView& view = views_.at(pin);
  CheckView(pin, view, true);
  if (const auto buffer = view.buffer.lock(); buffer != nullptr && view.subscription != 0) {
    buffer->Unsubscribe(view.subscription);
  }
  if (view.operation != 0) {
    const uint64_t operation = view.operation;
    history_.Drop(operation, Operation::State::kCancelled);
    // The entry stays until the void, because on_void cannot be withdrawn.
    let_go_[operation] = requests_.at(operation);
    operations_.erase(operation);
    requests_.erase(operation);
    streams_.erase(operation);
  }
  views_.erase(pin);
  history_.journal().Violation("Release", store_.Release(id_, pin, recycle));
}

// --------------------------------------------------------------------------------- other calls

uint64_t SimClient::Delete(const ObjectId& id, absl::Duration timeout) {
  const uint64_t operation = Begin("delete", id, timeout);
  const uint64_t deletion = history_.BeginDeletion(id, node_).number;
  store_.Delete(id_, id, After(timeout), [this, operation, deletion](const absl::Status& status) {
    history_.EndDeletion(deletion, status);
    End(operation, status);
  });
  return operation;
}

uint64_t SimClient::Stat(const ObjectId& id, absl::Duration timeout) {
  const uint64_t operation = Begin("stat", id, timeout);
  store_.Stat(id_, id, After(timeout),
              [this, operation](const absl::StatusOr<object_store::ObjectStat>& result) {
                if (result.ok()) {
                  history_.journal().Note("#", operation, " complete ", result->complete_copies,
                                          " partial ", result->partial_copies, " waiting ",
                                          result->waiting);
                }
                End(operation, result.status());
              });
  return operation;
}

uint64_t SimClient::Broadcast(const ObjectId& id, std::vector<std::string> nodes,
                              absl::Duration timeout) {
  const uint64_t operation = Begin("broadcast", id, timeout);
  requests_[operation] = store_.Broadcast(
      id_, id, {.nodes = std::move(nodes)}, After(timeout),
      [this, operation](const absl::StatusOr<int>& result) { End(operation, result.status()); });
  return operation;
}

void SimClient::Close(bool clean) {
  history_.journal().Note(node_.ToString(), clean ? " client closes" : " client dies");
  closed_ = true;
  for (auto& [pin, view] : views_) {
    CheckView(pin, view, true);
    const auto buffer = view.buffer.lock();
    if (buffer != nullptr && view.subscription != 0) buffer->Unsubscribe(view.subscription);
  }
  views_.clear();
  LoseEverything();
  store_.CloseClient(id_, clean);
}

// ------------------------------------------------------------------------------------- looking

std::vector<WriterId> SimClient::writers() const {
  std::vector<WriterId> ids;
  for (const auto& [id, writer] : writers_) ids.push_back(id);
  return ids;
}

std::vector<object_store::PinId> SimClient::pins() const {
  std::vector<PinId> ids;
  for (const auto& [id, view] : views_) ids.push_back(id);
  return ids;
}

bool SimClient::streams(PinId pin) const { return views_.at(pin).operation != 0; }

std::vector<uint64_t> SimClient::cancellable() const {
  std::vector<uint64_t> operations;
  for (const auto& [operation, request] : requests_) operations.push_back(operation);
  return operations;
}

void SimClient::CheckViews(bool all_bytes) {
  for (const auto& [pin, view] : views_) CheckView(pin, view, all_bytes);
}

void SimClient::CheckView(PinId pin, const OpenView& view, bool all_bytes) {
  constexpr uint64_t kSampleBytes = 64;
  if (view.attempt == 0) return;
  for (int i = 0; i < view.layout.slices; ++i) {
    const uint64_t seen = view.seen[static_cast<size_t>(i)];
    uint64_t from = 0;
    uint64_t to = seen;
    if (!all_bytes && seen > kSampleBytes) {
      // A prime stride visits all parts of the view over time, without a draw that would change the
      // run.
      from = ++samples_ * 7919 % (seen - kSampleBytes);
      to = from + kSampleBytes;
    }
    if (!CheckSlice(pin, view, i, from, to)) return;
  }
}

// Checks the bytes [from, to) of the slice.
bool SimClient::CheckSlice(PinId pin, const OpenView& view, int slice, uint64_t from, uint64_t to) {
  if (view.attempt == 0 || from >= to) return true;
  const auto breach = [&](absl::string_view what) {
    history_.journal().Violation(absl::StrCat(node_.ToString(), " pin ", pin, " on attempt ",
                                              view.attempt, " at ", history_.NameOf(view.id), ": ",
                                              what));
    return false;
  };
  // Checked first, because reading freed memory would crash instead of reporting.
  if (!view.has_memory || view.block.expired()) return breach("its memory has been given back");
  const uint64_t begin = view.layout.Begin(slice);
  const auto wrong =
      FirstWrongByte(view.attempt, begin + from, view.bytes.subspan(begin + from, to - from));
  if (!wrong) return true;
  return breach(absl::StrCat("byte ", *wrong, " of ", view.layout.object_bytes, " is wrong"));
}

}  // namespace phalanx::sim
