#include "head.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "activations.h"
#include "slices.h"

namespace strata {

namespace {

constexpr int kTokens = 256;  // of a block

struct HeadWork {
  HeadWork(const Linear& weight, Carver& carver, int tokens, int id, int threads)
      : tiles(slice_tiles(weight, tiles_of(weight), threads)),
        in(carver, tokens, id, threads, {&weight}) {
    size_t floats = (static_cast<size_t>(weight.k) + 15) / 16 * 16;
    float* all = carver.take<float>(floats * threads);
    own = all ? all + floats * id : nullptr;
  }
  int tiles;  // of a slice
  Activations in;
  float* own;  // the thread's row of h
};

}  // namespace

void Embed::prepare(const Step& step) const {
  for (int t = 0; t < step.count; ++t)
    if (step.tokens[t] < 0 || step.tokens[t] >= rows_)
      throw std::out_of_range("token " + std::to_string(step.tokens[t]) +
                              " is not in the vocabulary");
}

void Embed::run(Member& member, const Step& step, std::byte*) const {
  const size_t bytes = row_bytes(format_, hidden_);
  member.share(step.count, [&](int t) {
    float* x = step.x + static_cast<size_t>(t) * width();
    dequantise_row(format_, table_ + bytes * step.tokens[t], hidden_, x);
    for (int i = 1; i < streams_; ++i) std::copy(x, x + hidden_, x + i * hidden_);
  });
}

size_t Head::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  HeadWork(weights_.weight, carver, std::min(step.sampled, kTokens), 0, threads);
  return carver.used();
}

void Head::run(Member& member, const Step& step, std::byte* scratch) const {
  const Linear& weight = weights_.weight;
  for (int first = 0; first < step.sampled; first += kTokens) {
    Carver carver(scratch);
    int tokens = std::min(kTokens, step.sampled - first);
    HeadWork work(weight, carver, tokens, member.id(), member.size());
    auto norm = [&](int row) {
      weights_.port.enter_sampled(step, first + row, work.own);
      work.in.set(row, work.own);
    };
    float* logits = step.logits + static_cast<size_t>(first) * weight.n;
    share_after_rows(member, tokens, norm, slice_count(weight, work.tiles), [&](int task) {
      Slice slice = slice_at(weight, work.tiles, task);
      work.in.multiply(slice, 0, tokens, logits + slice.first, weight.n);
    });
  }
}

}  // namespace strata
