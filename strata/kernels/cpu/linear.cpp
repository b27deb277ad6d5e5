// Dispatch to the active instruction set, sizes, and the split into tasks.
#include "linear.h"

#include "gguf_rows.h"
#include "isa.h"
#include "kernels.h"
#include "layout.h"

namespace strata {

const KernelTable& active_table() {
  switch (active_isa()) {
#ifdef STRATA_BUILT_avx512
    case Isa::avx512: return avx512::kTable;
#endif
#ifdef STRATA_BUILT_avx2
    case Isa::avx2: return avx2::kTable;
#endif
#ifdef STRATA_BUILT_neon
    case Isa::neon: return neon::kTable;
#endif
    default: return portable::kTable;
  }
}

bool is_supported(int format) { return file_block(format).bytes != 0; }

int block_size(int format) { return file_block(format).weights; }

size_t row_bytes(int format, int k) {
  const BlockSize block = file_block(format);
  return block.bytes ? size_t(k) / block.weights * block.bytes : 0;
}

int tile_rows() { return active_table().tile_rows; }

size_t packed_bytes(int format, int n, int k) {
  const int rows = tile_rows();
  const size_t bytes = size_t(n + rows - 1) / rows * tile_bytes(format, k, rows);
  return (bytes + 63) / 64 * 64;
}

ActKind act_kind(int format) {
  switch (block_layout(format).block) {
    case 32: return ACT_Q8_32;
    case 256: return ACT_Q8_256;
    default: return ACT_F32;
  }
}

size_t act_bytes(ActKind kind, int k) {
  const size_t n = size_t(k);
  const size_t bytes = kind == ACT_Q8_32    ? n / 32 * sizeof(Act32)
                       : kind == ACT_Q8_256 ? n / 256 * sizeof(Act256)
                                            : n * sizeof(float);
  return (bytes + 63) / 64 * 64;
}

void quantise_row(ActKind kind, const float* x, int k, void* act_row) {
  active_table().quantise_row(kind, x, k, act_row);
}

namespace {

// A task is small enough to share few rows among many threads, large enough that
// taking it costs nothing: some 16 KB of weights, or as much arithmetic.
struct Split {
  int tiles, tiles_per_task, rows_per_task, row_tasks;
};

Split split(const Linear& linear, int rows) {
  const int height = tile_rows();
  const size_t bytes = tile_bytes(linear.format, linear.k, height);
  Split s;
  s.tiles = (linear.n + height - 1) / height;
  s.tiles_per_task = 4;
  while (s.tiles_per_task < 16 && s.tiles_per_task * bytes < 16384) s.tiles_per_task *= 2;
  s.rows_per_task = rows < 96 ? rows : 64;
  s.row_tasks = (rows + s.rows_per_task - 1) / s.rows_per_task;
  return s;
}

}  // namespace

int matmul_tasks(const Linear& linear, int rows) {
  if (rows == 0) return 0;
  const Split s = split(linear, rows);
  return (s.tiles + s.tiles_per_task - 1) / s.tiles_per_task * s.row_tasks;
}

void matmul_task(const Linear& linear, const void* act, const int32_t* order, int rows, float* y,
                 int ldy, int task) {
  const Split s = split(linear, rows);
  const int height = tile_rows();
  const int tile = task / s.row_tasks * s.tiles_per_task;
  const int row = task % s.row_tasks * s.rows_per_task;
  const int count = s.tiles - tile < s.tiles_per_task ? s.tiles - tile : s.tiles_per_task;
  const int left = linear.n - (tile + count - 1) * height;
  Panel panel;
  panel.tile_bytes = tile_bytes(linear.format, linear.k, height);
  panel.tiles = linear.tiles + tile * panel.tile_bytes;
  panel.tile_count = count;
  panel.lanes = left < height ? left : height;
  panel.k = linear.k;
  panel.act_stride = act_bytes(act_kind(linear.format), linear.k);
  panel.act = static_cast<const uint8_t*>(act) + (order ? 0 : row * panel.act_stride);
  panel.order = order ? order + row : nullptr;
  panel.rows = rows - row < s.rows_per_task ? rows - row : s.rows_per_task;
  panel.bias = linear.bias ? linear.bias + tile * height : nullptr;
  panel.y = y + size_t(row) * ldy + size_t(tile) * height;
  panel.ldy = ldy;
  active_table().multiply(linear.format, panel);
}

}  // namespace strata
