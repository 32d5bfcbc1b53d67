#include "src/object_store/store/put_requests.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::object_store {
namespace {

// The result of a Put if another generation of the object is complete.
// Only the sizes are compared: attempts of one task may differ in their bytes, and the first
// complete one counts.
absl::StatusOr<PutResult> Existing(const ObjectId& id, const Generation& generation,
                                   uint64_t existing_bytes, uint64_t own_bytes) {
  if (existing_bytes == own_bytes) return PutResult{true, generation};
  return absl::AlreadyExistsError(absl::StrCat("object ", id.hex(), " has ", existing_bytes,
                                               " bytes (generation ", generation.ToString(),
                                               "), not ", own_bytes));
}

absl::Status NotOpen(WriterId id) {
  return absl::NotFoundError(absl::StrCat("writer ", id, " is not open"));
}

// Raises the watermarks so that bytes [0, n) of the object are published.
void PublishPrefix(net::TransferBuffer& buffer, uint64_t n) {
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    const uint64_t begin = buffer.layout().Begin(slice);
    const uint64_t to = n <= begin ? 0 : std::min(n - begin, buffer.layout().Size(slice));
    if (to > buffer.watermark(slice)) buffer.Publish(slice, to);
  }
}

}  // namespace

PutRequests::PutRequests(const StoreOptions& options, Executor& executor, Turns& turns,
                         RequestTable& requests, ObjectTable& table, LocalCopies& copies,
                         CopyReporter& reporter, MemoryQueue& memory, PullManager& pulls,
                         PeerServer& peers)
    : options_(options),
      executor_(executor),
      turns_(turns),
      requests_(requests),
      table_(table),
      copies_(copies),
      reporter_(reporter),
      memory_(memory),
      pulls_(pulls),
      peers_(peers) {}

absl::Status PutRequests::Check(const PutOptions& options, uint64_t size) const {
  if (options.metadata.size() > kMaxMetadataBytes) {
    return absl::InvalidArgumentError(absl::StrCat("object ", options.id.hex(), ": metadata of ",
                                                   options.metadata.size(), " bytes; at most ",
                                                   kMaxMetadataBytes));
  }
  if (options.slices < 1 || options.slices > kMaxSlices) {
    return absl::InvalidArgumentError(absl::StrCat("object ", options.id.hex(), ": ",
                                                   options.slices, " slices; 1 to ", kMaxSlices));
  }
  if (options.ttl <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", options.id.hex(), ": a time to live of ",
                     absl::FormatDuration(options.ttl), "; it must be positive"));
  }
  if (options.copies > kMaxCopies) {
    return absl::InvalidArgumentError(absl::StrCat(
        "object ", options.id.hex(), ": ", options.copies, " copies; at most ", kMaxCopies));
  }
  if (size > kMaxObjectBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", options.id.hex(), ": ", size, " bytes; at most ", kMaxObjectBytes));
  }
  if (absl::Status status = copies_.scopes().Check(options.scope, executor_.Now()); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("object ", options.id.hex(), ": ", status.message()));
  }
  if (const auto ids = directory::ParseObjectIds("refers_to", options.refers_to); !ids.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", options.id.hex(), ": ", ids.status().message()));
  }
  // Refused at once: a request that no eviction can serve would wait until its deadline.
  return memory_.CheckFits(options.id, size + RecordBytes(options));
}

void PutRequests::AnswerPut(Request& request, absl::StatusOr<PutResult> result) {
  // The bytes are freed now; the answer may wait for its turn.
  std::get<PutPart>(request.part).bytes = std::string();
  requests_.Answer<PutPart>(request, std::move(result));
}

void PutRequests::AnswerCreate(Request& request, absl::StatusOr<WriteGrant> result) {
  if (result.ok()) std::get<CreatePart>(request.part).writer = result->writer;
  requests_.Answer<CreatePart>(request, std::move(result));
}

void PutRequests::OnMemory(Request& request, std::shared_ptr<MemoryBlock> block) {
  if (std::holds_alternative<PutPart>(request.part)) {
    FinishPut(request, std::move(block));
  } else {
    FinishCreate(request, std::move(block));
  }
}

void PutRequests::FinishPut(Request& request, std::shared_ptr<MemoryBlock> block) {
  PutPart& part = std::get<PutPart>(request.part);
  const uint64_t size = part.bytes.size();
  // While the Put waited for memory its scope can have ended, or the object arrived.
  if (absl::Status ended = copies_.scopes().Check(part.options.scope, executor_.Now());
      !ended.ok()) {
    table_.Unreserve(size + RecordBytes(part.options));
    return AnswerPut(request, std::move(ended));
  }
  if (const Copy* there = table_.Complete(request.object); there != nullptr) {
    table_.Unreserve(size + RecordBytes(part.options));
    AnswerPut(request, Existing(request.object, there->generation, there->size_bytes, size));
    return;
  }
  if (size > 0) std::memcpy(block->bytes().data(), part.bytes.data(), size);
  Copy* copy = AddCreated(part.options, size, std::move(block));
  SealCopy(copy);
  // After SealCopy: one message announces the object complete and carries its bytes.
  reporter_.AnnounceCreate(*copy, std::move(part.bytes), part.options.version);
  turns_.Touch(request.object);
  AnswerSealed(request, copy, part.options.wait_for_adoption);
}

void PutRequests::FinishCreate(Request& request, std::shared_ptr<MemoryBlock> block) {
  CreatePart& part = std::get<CreatePart>(request.part);
  if (absl::Status ended = copies_.scopes().Check(part.options.scope, executor_.Now());
      !ended.ok()) {
    table_.Unreserve(part.size_bytes + RecordBytes(part.options));
    return AnswerCreate(request, std::move(ended));
  }
  const Generation& named = part.options.generation;
  if (named.valid() && table_.Find(request.object, named) != nullptr) {
    table_.Unreserve(part.size_bytes + RecordBytes(part.options));
    AnswerCreate(request, absl::AbortedError(absl::StrCat("object ", request.object.hex(),
                                                          ", generation ", named.ToString(),
                                                          ", already has a copy on this node")));
    return;
  }
  Copy* copy = AddCreated(part.options, part.size_bytes, block);
  // The writer's pin: an eviction or a verdict must not free memory that a client maps for writing.
  table_.Pin(copy);
  const WriterId id = requests_.NewNumber();
  writers_.emplace(id, Writer{request.client, copy, part.timeout, std::nullopt});
  requests_.FindClient(request.client)->writers.insert(id);
  reporter_.AnnounceCreate(*copy, "", part.options.version);
  turns_.Touch(request.object);
  // Receivers can know a generation that the shard has named before it begins here.
  peers_.OnBegun(request.object);
  AnswerCreate(request, WriteGrant{id, copy->generation, std::move(block), copy->buffer});
}

Copy* PutRequests::AddCreated(const PutOptions& options, uint64_t size,
                              std::shared_ptr<MemoryBlock> block) {
  const Generation generation =
      options.generation.valid() ? options.generation : Generation{options_.self, next_sequence_++};
  std::unique_ptr<Copy> copy = copies_.New(options.id, generation, size, options.slices,
                                           TraitsOf(options), std::move(block));
  // The shard judges such a generation by a Verdict; a pulled one ends with Gone.
  copy->created_here = true;
  copy->state = CopyState::kWriting;
  // A generation that is being fetched is the adopted one.
  copy->standing = pulls_.Target(options.id) != nullptr ? Standing::kStandby : Standing::kPending;
  Copy* added = copies_.Add(std::move(copy));
  // Of a generation that several nodes make together, only one copy is the primary.
  if (generation.creator == options_.self) table_.MakePrimary(added);
  return added;
}

void PutRequests::SealCopy(Copy* copy) {
  PublishPrefix(*copy->buffer, copy->size_bytes);
  copies_.Complete(copy);
}

void PutRequests::SealWriter(Request& request, const Writer& writer, bool wait_for_adoption) {
  Copy* copy = writer.copy;
  // The verdict came before the Seal and has dropped the copy; its outcome waits with the writer.
  if (copy->detached) {
    AnswerPut(request, writer.outcome.value_or(absl::AbortedError("the generation ended")));
    return;
  }
  turns_.Touch(copy->id);
  // If both wait for their verdicts, the shard can have adopted this one: the verdicts decide.
  const Copy* there = table_.Complete(copy->id);
  const bool lost = there != nullptr && there->standing == Standing::kAdopted;
  if (lost && copy->standing != Standing::kAdopted) {
    const absl::StatusOr<PutResult> existing =
        Existing(copy->id, there->generation, there->size_bytes, copy->size_bytes);
    const absl::Status why = absl::AbortedError("another generation was complete first");
    reporter_.Withdraw(copy->id, copy->generation, why);
    copies_.Drop(copy, why);
    AnswerPut(request, existing);
    return;
  }
  // Before the announcement: a receiver that is assigned here finds all bytes published.
  SealCopy(copy);
  reporter_.AnnounceSeal(*copy);
  AnswerSealed(request, copy, wait_for_adoption && copy->standing != Standing::kAdopted);
}

void PutRequests::AnswerSealed(Request& request, Copy* copy, bool wait_for_adoption) {
  // By default a Put does not wait for the shard: if the node dies before its announcement arrives,
  // the object is gone (docs/lifetime.md).
  if (wait_for_adoption && !DefectActive(Defect::kAckBeforeAdoption)) {
    copy->waiting_put = request.id;
    requests_.WatchDeadline(request);
  } else {
    AnswerPut(request, PutResult{false, copy->generation});
  }
}

void PutRequests::AbortWriter(WriterId id, const absl::Status& why) {
  const auto it = writers_.find(id);
  const Writer writer = it->second;
  writers_.erase(it);
  if (Client* client = requests_.FindClient(writer.client); client != nullptr)
    client->writers.erase(id);
  // The shard knows already of a copy that has left the table.
  if (!writer.copy->detached) {
    turns_.Touch(writer.copy->id);
    reporter_.Withdraw(writer.copy->id, writer.copy->generation, why);
    copies_.Drop(writer.copy, why);
  }
  table_.Unpin(writer.copy);
}

bool PutRequests::AnswerCreator(Copy* copy, const absl::StatusOr<PutResult>& outcome) {
  Request* put = requests_.Find(std::exchange(copy->waiting_put, 0));
  // The Put can have been answered at its deadline in this turn.
  if (put != nullptr && put->stage == Request::Stage::kWaiting) {
    AnswerPut(*put, outcome);
    return true;
  }
  // Only a copy that is being written has a writer: the search below is over all of them.
  if (copy->state != CopyState::kWriting) return false;
  for (auto& [id, writer] : writers_) {
    if (writer.copy != copy) continue;
    writer.outcome = outcome;
    return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------ clients

RequestId PutRequests::Put(ClientId client, PutOptions options, std::string bytes, PutDone done) {
  const ObjectId id = options.id;
  const Instant deadline = options.deadline;
  const uint64_t size = bytes.size();
  Request& request = requests_.New(client, id, deadline,
                                   PutPart{std::move(options), std::move(bytes), std::move(done)});
  const PutOptions& kept = std::get<PutPart>(request.part).options;
  absl::Status status = requests_.Admit(client, id);
  if (status.ok()) status = Check(kept, size);
  // The node copies these bytes on its control loop: large ones would stop everything else.
  if (status.ok() && size > kOwnFileBytes) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "object ", id.hex(), ": ", size, " bytes in one message; at most ", kOwnFileBytes));
  }
  const Copy* there = table_.Complete(id);
  if (!status.ok()) {
    AnswerPut(request, std::move(status));
  } else if (there != nullptr) {
    AnswerPut(request, Existing(id, there->generation, there->size_bytes, size));
  } else {
    memory_.Ask(size, RecordBytes(kept), MemoryOwner{request.id, id, 0, {}});
  }
  return request.id;
}

RequestId PutRequests::Create(ClientId client, PutOptions options, uint64_t size, CreateDone done) {
  const ObjectId id = options.id;
  const Instant deadline = options.deadline;
  const absl::Duration timeout = deadline - executor_.Now();
  Request& request = requests_.New(
      client, id, deadline, CreatePart{std::move(options), size, std::move(done), timeout, 0});
  const PutOptions& kept = std::get<CreatePart>(request.part).options;
  absl::Status status = requests_.Admit(client, id);
  if (status.ok()) status = Check(kept, size);
  if (const Copy* there = table_.Complete(id); status.ok() && there != nullptr) {
    // Not an error if the size is the same: the Seal returns that the object existed already.
    status = Existing(id, there->generation, there->size_bytes, size).status();
  }
  if (status.ok() && kept.memory != nullptr) {
    const uint64_t bytes = size + RecordBytes(kept);
    // A reservation that is too small is the caller's mistake; to wait for more would hold what it
    // has.
    if (bytes > kept.memory->bytes()) {
      AnswerCreate(request, absl::InvalidArgumentError(
                                absl::StrCat("object ", id.hex(), " takes ", bytes, " bytes; ",
                                             kept.memory->bytes(), " are reserved for it")));
    } else {
      memory_.AskFrom(*kept.memory, bytes, MemoryOwner{request.id, id, 0, {}, size});
    }
  } else if (status.ok()) {
    memory_.Ask(size, RecordBytes(kept), MemoryOwner{request.id, id, 0, {}});
  } else {
    AnswerCreate(request, std::move(status));
  }
  return request.id;
}

absl::Status PutRequests::Publish(ClientId client, WriterId id, uint64_t n) {
  const Writer* writer = FindWriter(client, id);
  if (writer == nullptr) return NotOpen(id);
  const Copy& copy = *writer->copy;
  // Counted from the buffer, which other nodes read already: a watermark never goes back.
  uint64_t published = 0;
  for (int slice = 0; slice < copy.buffer->layout().slices; ++slice) {
    published += copy.buffer->watermark(slice);
  }
  if (n > copy.size_bytes || n < published) {
    return absl::InvalidArgumentError(absl::StrCat("object ", copy.id.hex(), " of ",
                                                   copy.size_bytes, " bytes, ", published,
                                                   " published: cannot publish ", n));
  }
  PublishPrefix(*copy.buffer, n);
  return absl::OkStatus();
}

void PutRequests::Seal(ClientId client, WriterId id, bool wait_for_adoption, PutDone done) {
  const Writer* found = FindWriter(client, id);
  const Writer writer = found != nullptr ? *found : Writer();
  Request& request =
      requests_.New(client, found != nullptr ? writer.copy->id : ObjectId(),
                    executor_.Now() + writer.timeout, PutPart{{}, {}, std::move(done)});
  if (found == nullptr) return AnswerPut(request, NotOpen(id));
  // Before SealWriter: whatever comes of it, the writer has ended.
  writers_.erase(id);
  requests_.FindClient(client)->writers.erase(id);
  SealWriter(request, writer, wait_for_adoption);
  table_.Unpin(writer.copy);
}

void PutRequests::AnnounceAgain(const ObjectId& id, const Generation& generation,
                                const SlotVersion& version) {
  const Copy* copy = table_.Find(id, generation);
  if (copy == nullptr) return;
  const bool whole = copy->state == CopyState::kComplete && copy->size_bytes <= kMaxInlineBytes;
  const absl::Span<const char> bytes = copy->block->bytes();
  reporter_.AnnounceCreate(*copy, whole ? std::string(bytes.data(), bytes.size()) : "", version);
}

absl::Status PutRequests::Abort(ClientId client, WriterId id) {
  const Writer* writer = FindWriter(client, id);
  if (writer == nullptr) return NotOpen(id);
  AbortWriter(id, absl::AbortedError("the writer aborted"));
  return absl::OkStatus();
}

void PutRequests::Cancel(Request& request) {
  if (auto* create = std::get_if<CreatePart>(&request.part);
      create != nullptr && create->writer != 0) {
    AbortWriter(create->writer, absl::CancelledError("Create cancelled"));
  }
  for (Copy* copy = table_.First(request.object); copy != nullptr; copy = copy->next_generation) {
    if (copy->waiting_put == request.id) copy->waiting_put = 0;
  }
}

void PutRequests::CloseClient(Client& client, bool clean) {
  // A copy of the set: AbortWriter erases from it.
  for (const WriterId writer : std::set<WriterId>(client.writers)) {
    // A process that did not say goodbye may still have the pages mapped for writing.
    if (!clean) writers_.at(writer).copy->block->Condemn(client.id);
    AbortWriter(writer, absl::AbortedError("the writer ended before it sealed"));
  }
}

PutRequests::Writer* PutRequests::FindWriter(ClientId client, WriterId id) {
  const auto it = writers_.find(id);
  return it == writers_.end() || it->second.client != client ? nullptr : &it->second;
}

absl::Status PutRequests::CheckInvariants() const {
  for (const auto& [id, writer] : writers_) {
    const Client* client = requests_.FindClient(writer.client);
    if (client == nullptr || !client->writers.contains(id)) {
      return absl::InternalError("a writer without its client");
    }
    if (writer.copy->pins == 0) return absl::InternalError("a writer's copy is not pinned");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
