// One row of a GGUF matrix to floats: what an embedding lookup needs.
#include "codes.h"
#include "gguf_rows.h"
#include "linear.h"

namespace strata {

namespace {

// The four formats with 16 bytes of nibbles; bits may be null.
void nibbles(const uint8_t* q, const uint8_t* bits, float d, int offset, float m, bool min,
             float* out) {
  const uint32_t high = bits ? read_as<uint32_t>(bits) : 0;
  for (int i = 0; i < 32; ++i) {
    const int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    const int value = (low | int(high >> i & 1) << 4) - offset;
    out[i] = min ? d * float(value) + m : d * float(value);
  }
}

void block(const RowQ8_0& b, float* out) {
  for (int i = 0; i < 32; ++i) out[i] = float(b.q[i]) * half_at(b.d);
}
void block(const RowQ4_0& b, float* out) { nibbles(b.q, nullptr, half_at(b.d), 8, 0, false, out); }
void block(const RowQ5_0& b, float* out) { nibbles(b.q, b.bits, half_at(b.d), 16, 0, false, out); }
void block(const RowQ4_1& b, float* out) {
  nibbles(b.q, nullptr, half_at(b.d), 0, half_at(b.m), true, out);
}
void block(const RowQ5_1& b, float* out) {
  nibbles(b.q, b.bits, half_at(b.d), 0, half_at(b.m), true, out);
}

// bits may be null.
void sub_blocks(const uint8_t* d, const uint8_t* dmin, const uint8_t* scales, const uint8_t* q,
                const uint8_t* bits, float* out) {
  for (int j = 0; j < 8; ++j) {
    uint8_t scale, minimum;
    sub_scale(scales, j, scale, minimum);
    const float ds = half_at(d) * float(scale), dm = half_at(dmin) * float(minimum);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = q[j / 2 * 32 + i];
      int value = j % 2 ? byte >> 4 : byte & 15;
      if (bits) value |= (bits[i] >> j & 1) << 4;
      out[j * 32 + i] = ds * float(value) - dm;
    }
  }
}

void block(const RowQ4_K& b, float* out) {
  sub_blocks(b.d, b.dmin, b.scales, b.q, nullptr, out);
}
void block(const RowQ5_K& b, float* out) { sub_blocks(b.d, b.dmin, b.scales, b.q, b.bits, out); }

void block(const RowQ6_K& b, float* out) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, g = i % 128 / 32, l = i % 32;
    const uint8_t byte = b.q[half * 64 + g % 2 * 32 + l];
    const int low = g < 2 ? byte & 15 : byte >> 4;
    const int value = (low | (b.bits[half * 32 + l] >> 2 * g & 3) << 4) - 32;
    out[i] = half_at(b.d) * float(b.scales[i / 16]) * float(value);
  }
}

void block(const RowF8& b, float* out) {
  for (int i = 0; i < 128; ++i) out[i] = read_as<float>(b.d) * e4m3_at(b.q + i);
}
void block(const RowI4& b, float* out) {
  const uint32_t head = read_as<uint32_t>(b.head), bits = head & ~255u;
  nibbles(b.q, nullptr, read_as<float>(&bits), head & 255, 0, false, out);
}

// Blocks of 2 `half` weights: low nibbles, then high ones.
void values(const int8_t* table, const uint8_t* q, int half, float d, float* out) {
  for (int i = 0; i < half; ++i) {
    out[i] = d * float(table[q[i] & 15]);
    out[half + i] = d * float(table[q[i] >> 4]);
  }
}
void block(const RowIQ4_NL& b, float* out) { values(kValuesNL, b.q, 16, half_at(b.d), out); }
void block(const RowMXFP4& b, float* out) { values(kValuesFP4, b.q, 16, e8m0_half(b.e), out); }
void block(const RowNVFP4& b, float* out) {
  for (int j = 0; j < 4; ++j) {
    values(kValuesFP4, b.q + 8 * j, 8, ue4m3_half(b.scales[j]), out + 16 * j);
  }
}

// What is multiplied is exact, so that any order gives the same; only zeros keep signs.
void code_block(int format, const uint8_t* b, float* out) {
  Codes c;
  read_codes(format, b, c);
  const int8_t* table = code_values(format);
  const float d = half_to_float(c.d) * code_unit(format);
  const float dmin = half_to_float(c.dmin) * code_unit_min(format);
  const bool shifted = codes_shifted(format);
  for (int i = 0; i < 256; ++i) {
    const int scale = c.scale[i / 16], value = table[c.code[i]], minimum = c.minimum[i / 16];
    out[i] = shifted ? d * float(scale * value - minimum)
                     : d * float(scale) * float(value) - dmin * float(minimum);
  }
}

template <class Row>
void blocks(int format, const void* row, int k, float* out) {
  const int weights = file_block(format).weights;
  const Row* b = static_cast<const Row*>(row);  // all members are bytes: any alignment
  for (int i = 0; i < k / weights; ++i) block(b[i], out + i * weights);
}

}  // namespace

void dequantise_row(int format, const void* gguf_row, int k, float* out) {
  const uint8_t* p = static_cast<const uint8_t*>(gguf_row);
  switch (format) {
    case F32: std::memcpy(out, p, size_t(k) * 4); break;
    case F16: for (int i = 0; i < k; ++i) out[i] = half_at(p + 2 * i); break;
    case BF16: for (int i = 0; i < k; ++i) out[i] = bf16_at(p + 2 * i); break;
    case Q8_0: blocks<RowQ8_0>(format, p, k, out); break;
    case Q4_0: blocks<RowQ4_0>(format, p, k, out); break;
    case Q4_1: blocks<RowQ4_1>(format, p, k, out); break;
    case Q5_0: blocks<RowQ5_0>(format, p, k, out); break;
    case Q5_1: blocks<RowQ5_1>(format, p, k, out); break;
    case Q4_K: blocks<RowQ4_K>(format, p, k, out); break;
    case Q5_K: blocks<RowQ5_K>(format, p, k, out); break;
    case Q6_K: blocks<RowQ6_K>(format, p, k, out); break;
    case IQ4_NL: blocks<RowIQ4_NL>(format, p, k, out); break;
    case MXFP4: blocks<RowMXFP4>(format, p, k, out); break;
    case NVFP4: blocks<RowNVFP4>(format, p, k, out); break;
    case E4M3: for (int i = 0; i < k; ++i) out[i] = e4m3_at(p + i); break;
    case F8: blocks<RowF8>(format, p, k, out); break;
    case I4: blocks<RowI4>(format, p, k, out); break;
    default:
      if (!code_bits(format)) break;
      for (int i = 0; i < k / 256; ++i) {
        code_block(format, p + size_t(file_block(format).bytes) * i, out + 256 * i);
      }
  }
}

}  // namespace strata
