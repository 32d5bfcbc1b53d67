// Memory that is counted like an object's and is none: what reductions compute with.
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/object_store/store_impl.h"

namespace phalanx::object_store {

class Store::Impl::CountedReservation final : public Reservation {
 public:
  CountedReservation(Impl& impl, uint64_t bytes) : impl_(impl), alive_(impl.alive_), bytes_(bytes) {
    impl_.scratch_bytes_ += bytes;
  }
  ~CountedReservation() override {
    if (alive_.expired()) return;
    Turn turn(impl_);
    impl_.scratch_bytes_ -= bytes_;
    impl_.table_.Unreserve(bytes_);
  }

  uint64_t bytes() const override { return bytes_; }
  // They stay reserved, and are somebody else's from now on.
  void Take(uint64_t bytes) {
    PHALANX_CHECK(bytes <= bytes_, "no more is taken than was reserved");
    bytes_ -= bytes;
    impl_.scratch_bytes_ -= bytes;
  }

 private:
  Impl& impl_;
  const std::weak_ptr<char> alive_;
  uint64_t bytes_;
};

void Store::Impl::Reserved(Request& request, uint64_t bytes) {
  absl::StatusOr<std::shared_ptr<Reservation>> result =
      std::make_shared<CountedReservation>(*this, bytes);
  request.answer = [done = std::move(std::get<ScratchPart>(request.part).done),
                    result = std::move(result)]() mutable { done(std::move(result)); };
  Finish(request);
}

std::shared_ptr<Reservation> Store::Impl::TakeFrom(Reservation& from, uint64_t bytes) {
  static_cast<CountedReservation&>(from).Take(bytes);
  return std::make_shared<CountedReservation>(*this, bytes);
}

void Store::Impl::CreateFrom(Request& request, Reservation& from, uint64_t bytes) {
  if (bytes > from.bytes()) {
    AnswerCreate(request, absl::InvalidArgumentError(
                              absl::StrCat("object ", request.object.hex(), " takes ", bytes,
                                           " bytes; ", from.bytes(), " are reserved for it")));
    return;
  }
  static_cast<CountedReservation&>(from).Take(bytes);
  const uint64_t size = std::get<CreatePart>(request.part).size_bytes;
  Allocate(bytes, MemoryOwner{request.id, request.object, 0, {}, size});
}

// ------------------------------------------------------------------------------ public methods

RequestId Store::ReserveScratch(ClientId client, const ObjectId& purpose, uint64_t bytes,
                                Instant deadline, ReserveDone done) {
  Impl::Turn turn(*impl_);
  Impl::Request& request =
      impl_->NewRequest(client, purpose, deadline, Impl::ScratchPart{std::move(done)});
  if (absl::Status status = impl_->Admit(client, purpose); !status.ok()) {
    impl_->AnswerError(request, status);
  } else {
    impl_->AskMemory(bytes, 0, Impl::MemoryOwner{request.id, purpose, 0, {}});
  }
  return request.id;
}

uint64_t Store::CountedBytes(uint64_t size, const PutOptions& options) const {
  return size + impl_->RecordBytes(options);
}

void Store::AllocateScratch(const std::shared_ptr<Reservation>& from, uint64_t bytes,
                            absl::AnyInvocable<void(absl::StatusOr<Scratch>)> done) {
  Impl::Turn turn(*impl_);
  std::shared_ptr<Reservation> counted = impl_->TakeFrom(*from, bytes);
  impl_->memory_.Allocate(
      bytes, impl_->Guarded([counted = std::move(counted), done = std::move(done)](
                                absl::StatusOr<std::shared_ptr<MemoryBlock>> block) mutable {
        if (!block.ok()) return done(block.status());
        done(Scratch{*std::move(block), std::move(counted)});
      }));
}

}  // namespace phalanx::object_store
