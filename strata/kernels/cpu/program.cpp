#include "program.h"

#include <algorithm>
#include <cstdlib>
#include <new>

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

std::vector<bool> Program::run(Step step) {
  set_active_isa(isa_);
  std::vector<std::atomic<int>> written(step.capture_count);
  step.written = written.data();
  step.last = step.count ? *std::max_element(step.positions, step.positions + step.count) : 0;
  size_t bytes = 0;
  int width = 0, mixed = 0, stateful = 0;
  for (const auto& op : ops_) {
    stateful += op->stateful();
    op->prepare(step);
    bytes = std::max(bytes, op->scratch(step, threads_));
    width = std::max(width, op->width());
    mixed = std::max(mixed, op->mixed());
  }
  std::byte* scratch = scratch_.at_least(bytes);
  const size_t floats = sizeof(float) * static_cast<size_t>(step.count);
  step.x = reinterpret_cast<float*>(stream_.at_least(floats * width));
  const size_t rows = std::max(step.count, step.sampled);
  step.mixed = reinterpret_cast<float*>(mixed_.at_least(sizeof(float) * rows * mixed));
  Team team;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads_)
  {
    Member member(team, omp_get_thread_num(), omp_get_num_threads());
    for (const auto& op : ops_) op->run(member, step, scratch);
  }
#else
  Member member(team, 0, 1);
  for (const auto& op : ops_) op->run(member, step, scratch);
#endif
  std::vector<bool> whole(step.capture_count);
  for (int i = 0; i < step.capture_count; ++i) whole[i] = written[i].load() == stateful;
  return whole;
}

}  // namespace strata
