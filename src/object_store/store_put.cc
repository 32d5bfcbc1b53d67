#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/directory/validate.h"
#include "src/object_store/store_impl.h"

namespace phalanx::object_store {
namespace {

// What a Put is told when another generation of the object is complete.
absl::StatusOr<PutResult> Existing(const ObjectId& id, const Generation& generation,
                                   uint64_t existing_bytes, uint64_t own_bytes) {
  if (existing_bytes == own_bytes) return PutResult{true, generation};
  return absl::AlreadyExistsError(absl::StrCat("object ", id.hex(), " has ", existing_bytes,
                                               " bytes (generation ", generation.ToString(),
                                               "), not ", own_bytes));
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

absl::Status Store::Impl::CheckPut(const PutOptions& options, uint64_t size) const {
  if (options.metadata.size() > kMaxMetadataBytes) {
    return absl::InvalidArgumentError(absl::StrCat("object ", options.id.hex(), ": metadata of ",
                                                   options.metadata.size(), " bytes; at most ",
                                                   kMaxMetadataBytes));
  }
  if (options.slices < 1 || options.slices > kMaxSlices) {
    return absl::InvalidArgumentError(absl::StrCat("object ", options.id.hex(), ": ",
                                                   options.slices, " slices; 1 to ", kMaxSlices));
  }
  if (size > kMaxObjectBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", options.id.hex(), ": ", size, " bytes; at most ", kMaxObjectBytes));
  }
  if (const auto ids = directory::ParseObjectIds("refers_to", options.refers_to); !ids.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", options.id.hex(), ": ", ids.status().message()));
  }
  const uint64_t bytes = size + RecordBytes(options);
  return bytes > table_.capacity_bytes() ? TooLarge(options.id, bytes) : absl::OkStatus();
}

void Store::Impl::AnswerPut(Request& request, absl::StatusOr<PutResult> result) {
  PutPart& part = std::get<PutPart>(request.part);
  request.answer = [done = std::move(part.done), result = std::move(result)]() mutable {
    done(std::move(result));
  };
  part.bytes = std::string();
  Finish(request);
}

void Store::Impl::AnswerCreate(Request& request, absl::StatusOr<WriteGrant> result) {
  CreatePart& part = std::get<CreatePart>(request.part);
  if (result.ok()) part.writer = result->writer;
  request.answer = [done = std::move(part.done), result = std::move(result)]() mutable {
    done(std::move(result));
  };
  Finish(request);
}

void Store::Impl::FinishPut(Request& request, std::shared_ptr<MemoryBlock> block) {
  PutPart& part = std::get<PutPart>(request.part);
  const uint64_t size = part.bytes.size();
  if (const Copy* there = table_.Complete(request.object); there != nullptr) {
    table_.Unreserve(size + RecordBytes(part.options));
    AnswerPut(request, Existing(request.object, there->generation, there->size_bytes, size));
    return;
  }
  if (size > 0) std::memcpy(block->bytes().data(), part.bytes.data(), size);
  Copy* copy = AddCreated(part.options, size, std::move(block));
  SealCopy(copy);
  AnnounceCreate(*copy, std::move(part.bytes), part.options.version);
  Touch(request.object);
  if (part.options.wait_for_adoption && !DefectActive(Defect::kAckBeforeAdoption)) {
    copy->waiting_put = request.id;
    WatchDeadline(request);
  } else {
    AnswerPut(request, PutResult{false, copy->generation});
  }
}

void Store::Impl::FinishCreate(Request& request, std::shared_ptr<MemoryBlock> block) {
  CreatePart& part = std::get<CreatePart>(request.part);
  const Generation& named = part.options.generation;
  if (named.valid() && table_.Find(request.object, named) != nullptr) {
    table_.Unreserve(part.size_bytes + RecordBytes(part.options));
    AnswerCreate(request,
                 absl::AbortedError(absl::StrCat("object ", request.object.hex(), ", generation ",
                                                 named.ToString(), ", is here already")));
    return;
  }
  Copy* copy = AddCreated(part.options, part.size_bytes, block);
  table_.Pin(copy);
  const WriterId id = next_number_++;
  writers_.emplace(id, Writer{request.client, copy, part.timeout, std::nullopt});
  FindClient(request.client)->writers.insert(id);
  AnnounceCreate(*copy, "", part.options.version);
  Touch(request.object);
  // Of a generation that the shard has named others may know before it begins here.
  AnswerServes(request.object, /*expired=*/0);
  AnswerCreate(request, WriteGrant{id, copy->generation, std::move(block), copy->buffer});
}

Copy* Store::Impl::AddCreated(const PutOptions& options, uint64_t size,
                              std::shared_ptr<MemoryBlock> block) {
  const Generation generation =
      options.generation.valid() ? options.generation : Generation{options_.self, next_sequence_++};
  std::unique_ptr<Copy> copy =
      NewCopy(options.id, generation, size, options.slices, TraitsOf(options), std::move(block));
  copy->asked_for = options.asked_for;
  copy->created_here = true;
  copy->state = CopyState::kWriting;
  // While another generation is being fetched it is the adopted one.
  copy->standing = pulls_.Target(options.id) != nullptr ? Standing::kStandby : Standing::kPending;
  Copy* added = table_.Add(std::move(copy));
  HoldReferences(*added);
  // Of what several nodes make together, one copy is the primary.
  if (generation.creator == options_.self) table_.MakePrimary(added);
  return added;
}

void Store::Impl::SealCopy(Copy* copy) {
  PublishPrefix(*copy->buffer, copy->size_bytes);
  copy->buffer->Close(absl::OkStatus());
  table_.MarkComplete(copy);
  EndReaders(copy);
}

void Store::Impl::SealWriter(Request& request, const Writer& writer, bool wait_for_adoption) {
  Copy* copy = writer.copy;
  if (copy->detached) {
    AnswerPut(request, writer.outcome.value_or(absl::AbortedError("the generation ended")));
    return;
  }
  Touch(copy->id);
  // Of two that wait for their verdicts the shard may have adopted this one: it decides.
  const Copy* there = table_.Complete(copy->id);
  const bool lost = there != nullptr && there->standing == Standing::kAdopted;
  if (lost && copy->standing != Standing::kAdopted) {
    const absl::StatusOr<PutResult> existing =
        Existing(copy->id, there->generation, there->size_bytes, copy->size_bytes);
    const absl::Status why = absl::AbortedError("another generation was complete first");
    SendWithdraw(copy->id, copy->generation, why);
    DropCopy(copy, why);
    AnswerPut(request, existing);
    return;
  }
  SealCopy(copy);
  AnnounceSeal(*copy);
  if (wait_for_adoption && copy->standing != Standing::kAdopted &&
      !DefectActive(Defect::kAckBeforeAdoption)) {
    copy->waiting_put = request.id;
    WatchDeadline(request);
  } else {
    AnswerPut(request, PutResult{false, copy->generation});
  }
}

void Store::Impl::AbortWriter(WriterId id, const absl::Status& why) {
  const auto it = writers_.find(id);
  const Writer writer = it->second;
  writers_.erase(it);
  if (Client* client = FindClient(writer.client); client != nullptr) client->writers.erase(id);
  if (!writer.copy->detached) {
    Touch(writer.copy->id);
    SendWithdraw(writer.copy->id, writer.copy->generation, why);
    DropCopy(writer.copy, why);
  }
  table_.Unpin(writer.copy);
}

bool Store::Impl::TellCreator(Copy* copy, const absl::StatusOr<PutResult>& outcome) {
  Request* put = FindRequest(std::exchange(copy->waiting_put, 0));
  // It may have been answered at its deadline in this very turn.
  if (put != nullptr && put->stage == Request::Stage::kWaiting) {
    AnswerPut(*put, outcome);
    return true;
  }
  if (copy->state != CopyState::kWriting) return false;
  for (auto& [id, writer] : writers_) {
    if (writer.copy != copy) continue;
    writer.outcome = outcome;
    return true;
  }
  return false;
}

// ------------------------------------------------------------------------------ public methods

RequestId Store::Put(ClientId client, PutOptions options, std::string bytes, PutDone done) {
  Impl::Turn turn(*impl_);
  const ObjectId id = options.id;
  const Instant deadline = options.deadline;
  const uint64_t size = bytes.size();
  Impl::Request& request = impl_->NewRequest(
      client, id, deadline, Impl::PutPart{std::move(options), std::move(bytes), std::move(done)});
  const PutOptions& kept = std::get<Impl::PutPart>(request.part).options;
  absl::Status status = impl_->Admit(client, id);
  if (status.ok()) status = impl_->CheckPut(kept, size);
  if (status.ok() && size > kOwnFileBytes) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "object ", id.hex(), ": ", size, " bytes in one message; at most ", kOwnFileBytes));
  }
  const Copy* there = impl_->table_.Complete(id);
  if (!status.ok()) {
    impl_->AnswerPut(request, std::move(status));
  } else if (there != nullptr) {
    impl_->AnswerPut(request, Existing(id, there->generation, there->size_bytes, size));
  } else {
    impl_->AskMemory(size, impl_->RecordBytes(kept), Impl::MemoryOwner{request.id, id, 0, {}});
  }
  return request.id;
}

RequestId Store::Create(ClientId client, PutOptions options, uint64_t size, CreateDone done) {
  Impl::Turn turn(*impl_);
  const ObjectId id = options.id;
  const Instant deadline = options.deadline;
  const absl::Duration timeout = deadline - impl_->executor_.Now();
  Impl::Request& request =
      impl_->NewRequest(client, id, deadline,
                        Impl::CreatePart{std::move(options), size, std::move(done), timeout, 0});
  const PutOptions& kept = std::get<Impl::CreatePart>(request.part).options;
  absl::Status status = impl_->Admit(client, id);
  if (status.ok()) status = impl_->CheckPut(kept, size);
  if (const Copy* there = impl_->table_.Complete(id); status.ok() && there != nullptr) {
    // Of the same size: the Seal says that it existed already.
    status = Existing(id, there->generation, there->size_bytes, size).status();
  }
  if (status.ok() && kept.memory != nullptr) {
    impl_->CreateFrom(request, *kept.memory, size + impl_->RecordBytes(kept));
  } else if (status.ok()) {
    impl_->AskMemory(size, impl_->RecordBytes(kept), Impl::MemoryOwner{request.id, id, 0, {}});
  } else {
    impl_->AnswerCreate(request, std::move(status));
  }
  return request.id;
}

absl::Status Store::Publish(ClientId client, WriterId id, uint64_t n) {
  Impl::Turn turn(*impl_);
  const auto it = impl_->writers_.find(id);
  if (it == impl_->writers_.end() || it->second.client != client) {
    return absl::NotFoundError(absl::StrCat("writer ", id, " is not open"));
  }
  const Copy& copy = *it->second.copy;
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

void Store::Seal(ClientId client, WriterId id, bool wait_for_adoption, PutDone done) {
  Impl::Turn turn(*impl_);
  const auto it = impl_->writers_.find(id);
  const bool known = it != impl_->writers_.end() && it->second.client == client;
  const Impl::Writer writer = known ? it->second : Impl::Writer();
  Impl::Request& request = impl_->NewRequest(client, known ? writer.copy->id : ObjectId(),
                                             impl_->executor_.Now() + writer.timeout,
                                             Impl::PutPart{{}, {}, std::move(done)});
  if (!known) {
    impl_->AnswerPut(request, absl::NotFoundError(absl::StrCat("writer ", id, " is not open")));
    return;
  }
  impl_->writers_.erase(it);
  impl_->FindClient(client)->writers.erase(id);
  impl_->SealWriter(request, writer, wait_for_adoption);
  impl_->table_.Unpin(writer.copy);
}

void Store::AnnounceAgain(const ObjectId& id, const Generation& generation,
                          const Generation& version) {
  Impl::Turn turn(*impl_);
  const Copy* copy = impl_->table_.Find(id, generation);
  if (copy == nullptr) return;
  const bool whole = copy->state == CopyState::kComplete && copy->size_bytes <= kMaxInlineBytes;
  const absl::Span<const char> bytes = copy->block->bytes();
  impl_->AnnounceCreate(*copy, whole ? std::string(bytes.data(), bytes.size()) : "", version);
}

absl::Status Store::Abort(ClientId client, WriterId id) {
  Impl::Turn turn(*impl_);
  const auto it = impl_->writers_.find(id);
  if (it == impl_->writers_.end() || it->second.client != client) {
    return absl::NotFoundError(absl::StrCat("writer ", id, " is not open"));
  }
  impl_->AbortWriter(id, absl::AbortedError("the writer aborted"));
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
