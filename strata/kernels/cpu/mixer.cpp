#include "mixer.h"

#include <algorithm>
#include <cmath>

#include "activations.h"
#include "rows.h"
#include "slices.h"

namespace strata {

namespace {
constexpr int kTokens = 256;  // of a block
}

struct Mixer::Work {
  Work(const MixerWeights& w, Carver& carver, int tokens, int id, int threads)
      : tokens(tokens),
        down_tiles(slice_tiles(w.down, tiles_of(w.down), threads)),
        up_tiles(slice_tiles(w.up, tiles_of(w.up), threads)),
        in(carver, tokens, id, threads, {&w.down, w.inject ? &*w.inject : &w.down}),
        inner(carver, tokens, id, threads, {&w.up}),
        narrow(carver.take<float>(static_cast<size_t>(tokens) * w.down.n)) {
    const size_t floats = (static_cast<size_t>(std::max(w.down.k, w.up.k)) + 15) / 16 * 16;
    float* all = carver.take<float>(floats * threads);
    own = all ? all + floats * id : nullptr;
  }
  int tokens;
  int down_tiles, up_tiles;  // of a slice
  Activations in, inner;
  float* narrow;  // [tokens, rank]
  float* own;     // the thread's: a row
};

size_t Mixer::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  Work(weights_, carver, std::min(rows(step), kTokens), 0, threads);
  return carver.used();
}

void Mixer::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < rows(step); first += kTokens) {
    Carver carver(scratch);
    const int tokens = std::min(kTokens, rows(step) - first);
    block(member, step, first, Work(weights_, carver, tokens, member.id(), member.size()));
  }
}

void Mixer::block(Member& member, const Step& step, int first, const Work& work) const {
  const MixerWeights& w = weights_;
  const RowKernels& kernels = row_kernels();
  const int streams = w.port.streams, rank = w.down.n, stride = mixed();
  float* const mixed = step.mixed + static_cast<size_t>(first) * stride;
  auto normed = [&](int row) {
    const int token = w.inject ? first + row : step.sample[first + row];
    norm(step.x + static_cast<size_t>(token) * width(), work.own);
    work.in.set(row, work.own);
  };
  const int downs = slice_count(w.down, work.down_tiles);
  const int injects = w.inject ? slice_count(*w.inject, work.down_tiles) : 0;
  share_after_rows(member, work.tokens, normed, downs + injects, [&](int task) {
    if (task >= injects) {
      Slice slice = slice_at(w.down, work.down_tiles, task - injects);
      return work.in.multiply(slice, 0, work.tokens, work.narrow + slice.first, rank);
    }
    Slice slice = slice_at(*w.inject, work.down_tiles, task);  // first: it takes longest
    float* shares = mixed + width() + slice.first;
    work.in.multiply(slice, 0, work.tokens, shares, stride);
    for (int row = 0; row < work.tokens; ++row, shares += stride)
      for (int i = 0; i < slice.part.n; ++i)
        shares[i] = 2.0f / (1.0f + std::exp(-shares[i] / static_cast<float>(streams)));
  });
  auto activate = [&](int row) {
    std::copy_n(work.narrow + static_cast<size_t>(row) * rank, rank, work.own);
    kernels.multiply(work.own, 1.0f / static_cast<float>(streams), rank);
    kernels.sigmoid_mul(work.own, work.own, rank);
    work.inner.set(row, work.own);
  };
  share_after_rows(member, work.tokens, activate, slice_count(w.up, work.up_tiles), [&](int task) {
    Slice slice = slice_at(w.up, work.up_tiles, task);
    work.inner.multiply(slice, 0, work.tokens, mixed + slice.first, stride);
  });
}

void Mixer::norm(const float* x, float* out) const {
  const Port& port = weights_.port;
  for (int at = 0; at < port.width(); at += port.hidden)
    row_kernels().rms_norm(x + at, port.norm + at, port.eps, port.hidden, out + at);
}

}  // namespace strata
