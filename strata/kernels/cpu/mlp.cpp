#include "mlp.h"

#include <algorithm>

#include "activations.h"
#include "rows.h"
#include "slices.h"

namespace strata {

namespace {
constexpr int kTokens = 256;  // of a block
constexpr int kRows = 32;     // whose part of a sum a thread holds at a time
}  // namespace

struct Mlp::Work {
  Work(const MlpWeights& w, Carver& carver, int tokens, int id, int threads)
      : tokens(tokens),
        wide_tiles(slice_tiles(w.gate, tiles_of(w.gate), threads)),
        down_tiles(slice_tiles(w.down, tiles_of(w.down), threads)),
        in(carver, tokens, id, threads, {&w.gate, &w.up}),
        inner(carver, tokens, id, threads, {&w.down}),
        gated(carver.take<float>(static_cast<size_t>(tokens) * w.gate.n)) {
    size_t columns = static_cast<size_t>(std::max(wide_tiles, down_tiles)) * tile_rows();
    size_t floats = std::max<size_t>(columns * std::min(tokens, kRows), w.gate.k);
    floats = (floats + 15) / 16 * 16;
    float* all = carver.take<float>(floats * threads);
    own = all ? all + floats * id : nullptr;
  }
  int tokens;
  int wide_tiles, down_tiles;  // of a slice
  Activations in, inner;
  float* gated;  // [tokens, gate.n]
  float* own;    // the thread's: a row of h, or its part of a sum
};

size_t Mlp::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  Work(weights_, carver, std::min(step.count, kTokens), 0, threads);
  return carver.used();
}

void Mlp::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(scratch);
    int tokens = std::min(kTokens, step.count - first);
    Work work(weights_, carver, tokens, member.id(), member.size());
    block(member, step, first, work);
  }
}

void Mlp::block(Member& member, const Step& step, int first, const Work& work) const {
  const MlpWeights& w = weights_;
  const RowKernels& kernels = row_kernels();
  const int inner = w.gate.n, tokens = work.tokens;
  auto norm = [&](int row) {
    w.port.enter(step, first + row, work.own);
    work.in.set(row, work.own);
  };
  share_after_rows(member, tokens, norm, slice_count(w.gate, work.wide_tiles), [&](int task) {
    Slice gate = slice_at(w.gate, work.wide_tiles, task);
    Slice up = slice_at(w.up, work.wide_tiles, task);
    const int columns = gate.part.n;
    for (int row = 0; row < tokens; row += kRows) {
      int rows = std::min(kRows, tokens - row);
      float* gated = work.gated + static_cast<size_t>(row) * inner + gate.first;
      work.in.multiply(gate, row, rows, gated, inner);
      work.in.multiply(up, row, rows, work.own, columns);
      for (int r = 0; r < rows; ++r)
        kernels.silu_mul(gated + static_cast<size_t>(r) * inner, work.own + r * columns, columns);
    }
  });
  auto requantise = [&](int row) {
    work.inner.set(row, work.gated + static_cast<size_t>(row) * inner);
  };
  share_after_rows(member, tokens, requantise, slice_count(w.down, work.down_tiles), [&](int task) {
    Slice down = slice_at(w.down, work.down_tiles, task);
    for (int row = 0; row < tokens; row += kRows)
      w.port.add(step, first + row, work.inner, down, row, std::min(kRows, tokens - row),
                 work.own);
  });
}

}  // namespace strata
