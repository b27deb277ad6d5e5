// Every instruction set that runs here against the portable one, on random data: products
// with every format to the last bit, the layers' own arithmetic to rounding errors.
//
// Prints a line for each instruction set and each mismatch, and a checksum of the portable
// products, which is the same on every processor. Exit status 1: something differs. Uses no
// library, so that it runs bare under an emulator.
#include "codes.h"
#include "isa.h"
#include "linear.h"
#include "random.h"
#include "row_checks.h"
#include "say.h"

using namespace strata;

namespace {

constexpr int kMostRows = 9, kMostN = 33, kMostK = 1280;
constexpr int kMostFormat = 1100;  // above every number of linear.h

alignas(64) uint8_t file[kMostN * kMostK * 4];
alignas(64) uint8_t tiles[48 * kMostK * 4 + 64 * 1024];  // prefetching reads nothing, but be kind
alignas(64) uint8_t acts[kMostRows * kMostK * 5];
float input[kMostRows * kMostK], bias[kMostN];

// Random bytes, again and again, until the block holds numbers of a sane size.
void random_block(int format, int block, uint8_t* to) {
  static float weights[256];
  const size_t bytes = row_bytes(format, block);
  for (bool sane = false; !sane;) {
    for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(random_bits());
    dequantise_row(format, to, block, weights);
    sane = true;
    for (int i = 0; i < block; ++i) sane &= weights[i] > -100.0f && weights[i] < 100.0f;
  }
}

// Points of 8 magnitudes at most, in no order that a file knows.
void random_grids() {
  static uint8_t coordinates[1 << 15];
  for (uint8_t& coordinate : coordinates) coordinate = random_bits() & 7;
  for (int format = 0; format < kMostFormat; ++format) {
    if (grid_bytes(format)) set_grid(format, coordinates);
  }
}

struct Shape {
  int format, n, k, rows;
};

void random_product(const Shape& s) {
  const int unit = block_size(s.format), blocks = s.k / unit;
  const size_t bytes = row_bytes(s.format, unit);
  for (int i = 0; i < s.n * blocks; ++i) random_block(s.format, unit, file + i * bytes);
  for (int i = 0; i < s.rows * s.k; ++i) input[i] = random_float();
  for (int i = 0; i < s.n; ++i) bias[i] = random_float();
}

// y [rows, n] under one instruction set.
void multiply(Isa isa, const Shape& s, float* y) {
  set_active_isa(isa);
  pack(s.format, file, s.n, s.k, tiles);
  const ActKind kind = act_kind(s.format);
  const size_t stride = act_bytes(kind, s.k);
  for (int r = 0; r < s.rows; ++r) quantise_row(kind, input + r * s.k, s.k, acts + r * stride);
  const Linear linear{s.format, s.n, s.k, tiles, s.n % 2 ? bias : nullptr};
  for (int task = 0; task < matmul_tasks(linear, s.rows); ++task)
    matmul_task(linear, acts, nullptr, s.rows, y, s.n, task);
}

uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}

// The number of formats in which any bit differs.
int check_products(Isa isa, uint32_t& checksum) {
  static float expected[kMostRows * kMostN], got[kMostRows * kMostN];
  constexpr int kSizes[][3] = {{1, 1, 1}, {33, 2, 3}, {13, 3, kMostRows}, {24, 5, 6}};
  int bad = 0;
  for (int format = 0; format < kMostFormat; ++format) {
    if (!is_supported(format)) continue;
    int wrong = 0;
    for (const auto& [n, blocks, rows] : kSizes) {
      const int unit = block_size(format);
      const Shape shape{format, n, blocks * (unit == 1 ? 37 : unit), rows};
      random_product(shape);
      multiply(Isa::portable, shape, expected);
      multiply(isa, shape, got);
      for (int i = 0; i < rows * n; ++i) {
        checksum = checksum * 31 + bits_of(expected[i]);
        wrong += bits_of(got[i]) != bits_of(expected[i]);
      }
    }
    if (wrong) Line() << "  format " << format << ": " << wrong << " outputs differ";
    bad += wrong != 0;
  }
  return bad;
}

}  // namespace

int main() {
  Line() << "chosen: " << isa_name(best_isa());
  int bad = 0;
  uint32_t checksum = 0;
  random_grids();
  for (Isa isa : kBestFirst) {
    if (!isa_available(isa)) continue;
    seed_random(1);
    checksum = 0;
    const int products = check_products(isa, checksum), rows = check_rows(isa);
    Line() << isa_name(isa) << ": " << products << " formats and " << rows
           << " row functions differ from portable";
    bad += products + rows;
  }
  Line() << "checksum: " << static_cast<long>(checksum);
  return bad != 0;
}
