#include "program.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace strata {

Buffer::~Buffer() { std::free(data_); }

std::byte* Buffer::at_least(size_t bytes) {
  if (bytes <= size_) return data_;
  constexpr size_t kHuge = size_t{1} << 21;
  size_t align = bytes >= kHuge ? kHuge : 64;
  size_t size = (bytes + align - 1) / align * align;
  std::free(data_);
  size_ = 0;
  data_ = static_cast<std::byte*>(std::aligned_alloc(align, size));
  if (!data_) throw std::bad_alloc();
#ifdef __linux__
  if (align == kHuge) madvise(data_, size, MADV_HUGEPAGE);
#endif
  size_ = size;
  return data_;
}

Program::Program(std::vector<std::shared_ptr<const Op>> ops, int threads)
    : ops_(std::move(ops)), threads_(threads), isa_(active_isa()) {}

int Program::run(Step step) {
  set_active_isa(isa_);
  step_ = step;
  written_ = std::vector<std::atomic<int>>(step.capture_count);
  step_.written = written_.data();
  step_.last = step.count ? *std::max_element(step.positions, step.positions + step.count) : 0;
  reserve();
  at_ = 0;
  return advance(false);
}

// Memory for the step.
void Program::reserve() {
  size_t bytes = 0;
  int width = 0, mixed = 0;
  for (const auto& op : ops_) {
    op->prepare(step_);
    bytes = std::max(bytes, op->scratch(step_, threads_));
    width = std::max(width, op->width());
    mixed = std::max(mixed, op->mixed());
  }
  all_scratch_ = scratch_.at_least(bytes);
  const size_t floats = sizeof(float) * static_cast<size_t>(step_.count);
  step_.x = reinterpret_cast<float*>(stream_.at_least(floats * width));
  const size_t rows = std::max(step_.count, step_.sampled);
  step_.mixed = reinterpret_cast<float*>(mixed_.at_least(sizeof(float) * rows * mixed));
}

int Program::advance(bool finish) {
  aside([this, finish, from = at_](Member& member, const Step& step, std::byte* scratch) {
    size_t at = from;
    if (finish) ops_[at++]->finish(member, step, scratch);
    for (; at < ops_.size(); ++at) {
      ops_[at]->run(member, step, scratch);
      if (ops_[at]->stopped()) break;
    }
    if (member.id() == 0) at_ = at;
  });
  return static_cast<int>(at_);
}

int Program::resume() {
  if (at_ >= ops_.size()) throw std::logic_error("the step is over");
  return advance(true);
}

void Program::aside(const Work& work) {
  set_active_isa(isa_);
  Team team;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads_)
  {
    Member member(team, omp_get_thread_num(), omp_get_num_threads());
    work(member, step_, all_scratch_);
  }
#else
  Member member(team, 0, 1);
  work(member, step_, all_scratch_);
#endif
}

std::vector<bool> Program::written() const {
  int stateful = 0;
  for (const auto& op : ops_) stateful += op->stateful();
  std::vector<bool> whole(written_.size());
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = written_[i].load() == stateful;
  return whole;
}

}  // namespace strata
