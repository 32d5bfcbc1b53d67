#include "src/local/jobs/client_groups.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/local/jobs/refused_call.h"

namespace phalanx::object_store {

struct ClientGroups::Buffer {
  ScratchBlock memory;
  uint64_t bytes = 0;
  bool in_use = false;
  bool free_untold = false;
};

ClientGroups::ClientGroups(jobs::GroupService* groups, jobs::StoreGroupMemory* memory, Send send)
    : groups_(groups),
      memory_(memory),
      send_(std::move(send)),
      alive_(std::make_shared<ClientGroups*>(this)) {}

ClientGroups::~ClientGroups() = default;

absl::Status ClientGroups::Call(const jobs::LocalMember& member, const local::GroupCall& call,
                                Instant deadline) {
  if (groups_ == nullptr) return absl::FailedPreconditionError("this node has no groups");
  absl::StatusOr<jobs::GroupCallRequest> request = RequestFor(member, call, deadline);
  // The call takes its number all the same: the other members make it.
  if (!request.ok()) {
    request = jobs::GroupCallRequest{
        .spec = call.spec, .deadline = deadline, .refused = request.status()};
  }
  return groups_->Call(
      member.job, member.role, member.rank, member.life, *std::move(request), DoneOf(call.request),
      [alive = std::weak_ptr(alive_), request = call.request](const jobs::GroupPart& part) {
        const std::shared_ptr<ClientGroups*> self = alive.lock();
        if (self != nullptr) (*self)->OnPart(request, part);
      });
}

absl::Status ClientGroups::AskResult(const jobs::LocalMember& member,
                                     const local::GroupResult& result, Instant deadline) {
  return Ask(member, {.call = result.call, .deadline = deadline, .request = result.request});
}

absl::Status ClientGroups::AskProgress(const jobs::LocalMember& member,
                                       const local::AskGroupProgress& ask, Instant deadline) {
  return Ask(member, {.deadline = deadline, .request = ask.request, .progress = true});
}

absl::Status ClientGroups::Ask(const jobs::LocalMember& member, jobs::GroupQuestion question) {
  if (groups_ == nullptr) return absl::FailedPreconditionError("this node has no groups");
  question.rank = member.rank;
  question.life = member.life;
  // Before, because the answer can come inside the call.
  questions_[question.request] = {member.job, member.role, member.rank, member.life};
  const absl::Status asked =
      groups_->AskResult(member.job, member.role, question, DoneOf(question.request));
  if (!asked.ok()) questions_.erase(question.request);
  return asked;
}

void ClientGroups::CancelResult(uint64_t request) {
  const auto found = questions_.extract(request);
  if (found.empty()) return;
  const Question& question = found.mapped();
  groups_->CancelResult(question.job, question.role, question.rank, question.life, request);
}

jobs::GroupService::CallDone ClientGroups::DoneOf(uint64_t request) {
  return [alive = std::weak_ptr(alive_), request](const jobs::GroupDone& done) {
    const std::shared_ptr<ClientGroups*> self = alive.lock();
    if (self != nullptr) (*self)->OnDone(request, done);
  };
}

absl::StatusOr<jobs::GroupCallRequest> ClientGroups::RequestFor(const jobs::LocalMember& member,
                                                                const local::GroupCall& call,
                                                                Instant deadline) {
  if (call.buffer == local::kRefusedCall) return local::ReasonOf(call);
  jobs::GroupCallRequest request{.spec = call.spec, .deadline = deadline};
  // A small input comes within the message.
  if (call.buffer == 0) {
    auto input = std::make_shared<std::string>(call.input);
    request.input = *input;
    request.keep = std::move(input);
    return request;
  }
  const auto found = buffers_.find(call.buffer);
  if (found == buffers_.end() || found->second->in_use || call.input_size > found->second->bytes) {
    return absl::InvalidArgumentError(absl::StrCat("buffer ", call.buffer & ~kGroupNumber, " of ",
                                                   call.input_size,
                                                   " bytes is not free for an input"));
  }
  auto there = std::make_shared<jobs::ByteRanges>(call.input_size);
  PHALANX_RETURN_IF_ERROR(there->Add({call.filled_from, call.filled}));
  if (!there->complete()) {
    filling_[call.request] = {member.job, member.role, there};
    request.filled = std::move(there);
  }
  const std::shared_ptr<Buffer>& buffer = found->second;
  buffer->in_use = true;
  // Not copied: the client leaves the buffer alone until the node says that it is free.
  request.input = {buffer->memory.block->bytes().data(), call.input_size};
  // The group drops this when no node needs the input any more.
  request.keep = std::shared_ptr<const void>(
      buffer.get(), [buffer, alive = std::weak_ptr(alive_), request = call.request](const void*) {
        buffer->in_use = false;
        buffer->free_untold = true;
        const std::shared_ptr<ClientGroups*> self = alive.lock();
        if (self != nullptr) (*self)->filling_.erase(request);
      });
  return request;
}

absl::Status ClientGroups::OnFilled(const local::GroupFilled& filled) {
  const auto found = filling_.find(filled.request);
  // The call is forgotten, or was never made.
  if (found == filling_.end()) return absl::OkStatus();
  PHALANX_RETURN_IF_ERROR(found->second.there->Add({filled.from, filled.bytes}));
  // Answers of the group below can change the map.
  const Filling filling = found->second;
  if (filling.there->complete()) filling_.erase(found);
  groups_->InputFilled(filling.job, filling.role);
  return absl::OkStatus();
}

void ClientGroups::OnPart(uint64_t request, const jobs::GroupPart& part) {
  if (part.memory == nullptr) {
    shown_.erase(request);
  } else if (!shown_.contains(request)) {
    shown_[request] = {Show(request, part.result, part.memory), part.result, part.memory};
  }
  send_([answer = local::GroupPart{request, part.part.from, part.part.bytes}](
            LocalOutbox::Batch& batch) {
    batch.Add(answer);
    return true;
  });
}

void ClientGroups::OnDone(uint64_t request, const jobs::GroupDone& done) {
  questions_.erase(request);
  if (!done.status.ok()) return Fail(request, done.status, done.number);
  if (done.progress.has_value()) {
    return send_([answer = local::GroupProgress{request, done.number, *done.progress}](
                     LocalOutbox::Batch& batch) {
      batch.Add(answer);
      return true;
    });
  }
  if (jobs::StoreGroupMemory::BlockOf(done) != nullptr) return AnswerMapped(request, done);
  // A large result that is in the input of an earlier life: the client must not see that buffer.
  if (!done.in_input && done.result.size() > local::kMaxInlineGroupBytes) {
    return AnswerCopied(request, done);
  }
  shown_.erase(request);
  // The root of a broadcast has the bytes.
  const absl::string_view bytes = done.in_input ? absl::string_view() : done.result;
  const local::GroupDone answer{request, done.number, static_cast<uint32_t>(done.members),
                                TakeFree(), bytes};
  // The group can use the memory of a small result again.
  send_([answer, kept = std::string(bytes)](LocalOutbox::Batch& batch) {
    local::GroupDone later = answer;
    later.bytes = kept;
    batch.Add(later);
    return true;
  });
}

void ClientGroups::AnswerCopied(uint64_t request, const jobs::GroupDone& done) {
  memory_->Allocate(done.result.size(), 0, memory_->DefaultDeadline(),
                    [alive = std::weak_ptr(alive_), request, copied = jobs::GroupDone(done)](
                        absl::StatusOr<std::shared_ptr<jobs::GroupMemory>> memory) mutable {
                      const std::shared_ptr<ClientGroups*> self = alive.lock();
                      if (self == nullptr) return;
                      if (!memory.ok())
                        return (*self)->Fail(request, memory.status(), copied.number);
                      const absl::Span<char> work = (*memory)->work;
                      std::memcpy(work.data(), copied.result.data(), copied.result.size());
                      copied.result = {work.data(), copied.result.size()};
                      copied.memory = *std::move(memory);
                      (*self)->AnswerMapped(request, copied);
                    });
}

uint64_t ClientGroups::Show(uint64_t request, absl::string_view result,
                            std::shared_ptr<const jobs::GroupMemory> memory) {
  const uint64_t pin = ++next_number_;
  std::shared_ptr<MemoryBlock> block = jobs::StoreGroupMemory::BlockOf(*memory);
  const uint64_t offset =
      block->offset() + static_cast<uint64_t>(result.data() - block->bytes().data());
  // Before the answer, because the client can release the pin as soon as it knows its number.
  results_[pin] = {block, std::move(memory)};
  send_([this, request, pin, offset, bytes = result.size(),
         block = std::move(block)](LocalOutbox::Batch& batch) {
    switch (batch.Refer(block, /*writable=*/false)) {
      case LocalOutbox::Batch::Reference::kLater:
        return false;
      case LocalOutbox::Batch::Reference::kNone:
        results_.erase(pin);
        return true;
      case LocalOutbox::Batch::Reference::kGiven:
        break;
    }
    batch.Add(local::Mapped{request, pin, block->file_id(), offset, bytes, bytes, true, {}});
    return true;
  });
  return pin;
}

void ClientGroups::AnswerMapped(uint64_t request, const jobs::GroupDone& done) {
  const auto shown = shown_.extract(request);
  // There may have been no file descriptor for what was shown. There can be one now.
  const bool known = !shown.empty() && shown.mapped().memory == done.memory &&
                     shown.mapped().result.data() == done.result.data() &&
                     results_.contains(shown.mapped().pin);
  const uint64_t pin = known ? shown.mapped().pin : Show(request, done.result, done.memory);
  const local::GroupDone answer{
      request, done.number, static_cast<uint32_t>(done.members), TakeFree(), {}};
  send_([this, answer, pin](LocalOutbox::Batch& batch) {
    if (results_.contains(pin)) {
      batch.Add(answer);
      return true;
    }
    PutBackFree(answer.free_buffers);
    batch.Add(local::GroupDone{answer.request, answer.number, 0, {}, {}});
    batch.Add(local::Failed{answer.request, absl::StatusCode::kResourceExhausted,
                            "the node has no file descriptor left"});
    return true;
  });
}

absl::Status ClientGroups::MakeBuffer(const local::GroupBuffer& request, Instant deadline) {
  if (memory_ == nullptr) return absl::FailedPreconditionError("this node has no groups");
  if (request.bytes == 0 || request.bytes > jobs::kMaxGroupBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a buffer of ", request.bytes, " bytes; the limit is ", jobs::kMaxGroupBytes));
  }
  if (buffers_.size() + asked_buffers_ >= local::kMaxGroupBuffers) {
    return absl::ResourceExhaustedError(absl::StrCat("the client has ", buffers_.size(),
                                                     " buffers for inputs of group calls already"));
  }
  // Counted before the store answers, so that requests under way cannot exceed the limit.
  ++asked_buffers_;
  memory_->AllocateInput(request.bytes, deadline,
                         [alive = std::weak_ptr(alive_),
                          request = request.request](absl::StatusOr<ScratchBlock> block) {
                           const std::shared_ptr<ClientGroups*> self = alive.lock();
                           if (self != nullptr) (*self)->OnBuffer(request, std::move(block));
                         });
  return absl::OkStatus();
}

void ClientGroups::OnBuffer(uint64_t request, absl::StatusOr<ScratchBlock> block) {
  --asked_buffers_;
  if (!block.ok()) return Fail(request, block.status());
  const uint64_t number = ++next_number_;
  auto buffer = std::make_shared<Buffer>();
  buffer->bytes = block->block->bytes().size();
  buffer->memory = *std::move(block);
  buffers_[number] = buffer;
  send_([this, request, number, buffer](LocalOutbox::Batch& batch) {
    const std::shared_ptr<MemoryBlock>& memory = buffer->memory.block;
    switch (batch.Refer(memory, /*writable=*/true)) {
      case LocalOutbox::Batch::Reference::kLater:
        return false;
      case LocalOutbox::Batch::Reference::kNone:
        buffers_.erase(number);
        batch.Add(local::Failed{request, absl::StatusCode::kResourceExhausted,
                                "the node has no file descriptor left"});
        return true;
      case LocalOutbox::Batch::Reference::kGiven:
        break;
    }
    batch.Add(local::Granted{request, number, true, memory->file_id(), memory->offset()});
    return true;
  });
}

bool ClientGroups::DropBuffer(uint64_t number, ViewerId client) {
  const auto found = buffers_.find(number);
  if (found == buffers_.end()) return false;
  found->second->memory.block->Condemn(client);
  buffers_.erase(found);
  return true;
}

bool ClientGroups::Release(uint64_t pin, bool recycle, ViewerId client) {
  const auto found = results_.find(pin);
  if (found == results_.end()) return false;
  if (!recycle) found->second.block->Condemn(client);
  results_.erase(found);
  return true;
}

void ClientGroups::End(ViewerId client) {
  for (const auto& [number, buffer] : buffers_) buffer->memory.block->Condemn(client);
  for (const auto& [pin, result] : results_) result.block->Condemn(client);
  buffers_.clear();
  filling_.clear();
  results_.clear();
  shown_.clear();
}

void ClientGroups::Fail(uint64_t request, const absl::Status& why, uint64_t number) {
  shown_.erase(request);
  send_([request, why, number](LocalOutbox::Batch& batch) {
    if (number != 0) batch.Add(local::GroupDone{request, number, 0, {}, {}});
    batch.Add(local::Failed{request, why.code(), why.message()});
    return true;
  });
}

std::vector<uint64_t> ClientGroups::TakeFree() {
  std::vector<uint64_t> free;
  for (const auto& [number, buffer] : buffers_) {
    if (std::exchange(buffer->free_untold, false)) free.push_back(number);
  }
  return free;
}

void ClientGroups::PutBackFree(const std::vector<uint64_t>& numbers) {
  for (const uint64_t number : numbers) {
    // The client may have dropped it meanwhile.
    const auto found = buffers_.find(number);
    if (found != buffers_.end()) found->second->free_untold = true;
  }
}

}  // namespace phalanx::object_store
