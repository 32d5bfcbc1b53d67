#include "src/local/client_writes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store {
namespace {

absl::Status NotOpen(WriterId writer) {
  return absl::InvalidArgumentError(absl::StrCat("writer ", writer, " is not open"));
}

}  // namespace

absl::Status ClientWrites::AdmitPut(uint64_t bytes) {
  // A refusal, and not a pause in reading: a Release behind this Put can be what makes room.
  if (put_bytes_ > 0 && put_bytes_ + bytes > local::kMaxPutBytesInFlight) {
    return absl::ResourceExhaustedError(
        absl::StrCat(put_bytes_, " bytes of this client's earlier Puts are not stored yet"));
  }
  put_bytes_ += bytes;
  return absl::OkStatus();
}

void ClientWrites::Open(WriterId writer, std::shared_ptr<MemoryBlock> block, uint64_t size) {
  const bool has_file = block->writable_fd() >= 0;
  writers_[writer] = Writer{std::move(block), size, 0, has_file};
}

absl::Status ClientWrites::TakeBytes(Writer& writer, uint64_t upto, absl::string_view bytes) {
  if (upto < writer.published || upto > writer.size) {
    return absl::InvalidArgumentError(absl::StrCat("a writer of ", writer.size, " bytes published ",
                                                   upto, " after ", writer.published));
  }
  // Checked exactly: bytes that are missing would publish memory of an earlier object.
  if (bytes.size() != (writer.has_file ? 0 : upto - writer.published)) {
    return absl::InvalidArgumentError(absl::StrCat("a writer published up to ", upto, " after ",
                                                   writer.published, " and sent ", bytes.size(),
                                                   " bytes"));
  }
  if (!bytes.empty()) {
    std::memcpy(writer.block->bytes().data() + writer.published, bytes.data(), bytes.size());
  }
  writer.published = upto;
  return absl::OkStatus();
}

absl::Status ClientWrites::Publish(WriterId writer, uint64_t upto, absl::string_view bytes) {
  const auto it = writers_.find(writer);
  return it == writers_.end() ? NotOpen(writer) : TakeBytes(it->second, upto, bytes);
}

absl::Status ClientWrites::Seal(WriterId writer, absl::string_view bytes) {
  const auto it = writers_.find(writer);
  if (it == writers_.end()) return NotOpen(writer);
  // On an error the writer stays open, and the end of the client aborts it.
  PHALANX_RETURN_IF_ERROR(TakeBytes(it->second, it->second.size, bytes));
  writers_.erase(it);
  return absl::OkStatus();
}

absl::Status ClientWrites::Abort(WriterId writer) {
  return writers_.erase(writer) == 0 ? NotOpen(writer) : absl::OkStatus();
}

std::vector<WriterId> ClientWrites::writers() const {
  std::vector<WriterId> writers;
  for (const auto& [writer, state] : writers_) writers.push_back(writer);
  // The map's order differs from run to run.
  std::sort(writers.begin(), writers.end());
  return writers;
}

void ClientWrites::Condemn(WriterId writer, ViewerId client) {
  const Writer& state = writers_.at(writer);
  if (state.has_file) state.block->Condemn(client);
}

}  // namespace phalanx::object_store
