// What one instruction set provides; linear.cpp calls through the active one's.
#pragma once
#include "linear.h"

namespace strata {

// One run of output tiles for one run of activation rows.
struct Panel {
  const uint8_t* tiles;   // the first tile
  size_t tile_bytes;
  int tile_count;
  int lanes;              // outputs in the last tile
  int k;
  const uint8_t* act;     // the first row
  size_t act_stride;
  const int32_t* order;   // which rows of act, or null: consecutive ones
  int rows;
  const float* bias;      // of the first tile's first output, or null
  float* y;               // first row, first tile
  int ldy;
};

struct KernelTable {
  int tile_rows;
  bool offset_q8;         // Q8_0 weights are stored plus 128
  void (*quantise_row)(ActKind kind, const float* x, int k, void* act_row);
  void (*multiply)(int format, const Panel& panel);
};

namespace portable { extern const KernelTable kTable; }
namespace avx2 { extern const KernelTable kTable; }
namespace avx512 { extern const KernelTable kTable; }
namespace neon { extern const KernelTable kTable; }

}  // namespace strata
