// libFuzzer over the readers of GGUF blocks: any bytes as blocks of any format.
//
//   clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
//     -Istrata/kernels/cpu tests/fuzz/rows.cpp strata/kernels/cpu/{codes,dequantise}.cpp -o fuzz_rows
//   ./fuzz_rows -max_len=600 -max_total_time=60
//
// (Debian: clang-14 and libclang-rt-14-dev.) The first byte chooses the format, the rest are
// blocks. Memory ends where the blocks and their weights end; grids hold any bytes.
#include <cstdlib>
#include <memory>
#include <vector>

#include "codes.h"
#include "gguf_rows.h"

using namespace strata;

namespace {

std::vector<int> formats() {
  std::vector<int> found;
  for (int format = 0; format < 64; ++format) {
    if (file_block(format).bytes) found.push_back(format);
  }
  return found;
}

void check(bool held) {
  if (!held) std::abort();
}

void codes_in_bounds(int format, const uint8_t* block) {
  const auto codes = std::make_unique<Codes>();
  read_codes(format, block, *codes);
  for (int i = 0; i < 256; ++i) check(codes->code[i] >> code_bits(format) == 0);
  for (int j = 0; j < 16; ++j) {
    check(codes->scale[j] >= -32 && codes->scale[j] <= 31 && codes->minimum[j] <= 135);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  for (int format : formats()) {
    std::vector<uint8_t> grid(grid_bytes(format));
    for (size_t i = 0; i < grid.size(); ++i) grid[i] = uint8_t(i * 151 >> 3);
    if (!grid.empty()) set_grid(format, grid.data());
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<int> all = formats();
  if (size == 0) return 0;
  const int format = all[data[0] % all.size()];
  const BlockSize block = file_block(format);
  const size_t count = (size - 1) / block.bytes, bytes = count * block.bytes;
  // At an odd address, as blocks of odd size have.
  const auto memory = std::make_unique<uint8_t[]>(bytes + 1);
  std::memcpy(memory.get() + 1, data + 1, bytes);
  const auto weights = std::make_unique<float[]>(count * block.weights);
  dequantise_row(format, memory.get() + 1, int(count) * block.weights, weights.get());
  for (size_t i = 0; code_bits(format) && i < count; ++i) {
    codes_in_bounds(format, memory.get() + 1 + i * block.bytes);
  }
  return 0;
}
