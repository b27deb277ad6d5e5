// The super-blocks of 256 weights with small codes, all read as one thing.
//
// Whatever a format keeps in its file (bits apart, points of a grid and signs, digits of base
// three), a weight is a code of 2 to 4 bits that stands for a whole number, times the scale of
// its 16, less a minimum. Reading this takes integers only.
//
// Any bytes are read without leaving a table. Grids are the owner's to set before a format that
// has one is read; codes.cpp keeps a copy.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// weight i = unit d scale[i / 16] value[code[i]] - unit_min dmin minimum[i / 16]
struct Codes {
  uint8_t code[256];    // below 2^code_bits(format)
  int8_t scale[16];     // of 16 weights each; equal in pairs where the format has one for 32
  uint8_t minimum[16];  // 0 where the format has none
  uint16_t d, dmin;     // f16 bits; dmin is d where the minimum only shifts the codes, see below
};

// 2: Q2_K IQ1_S TQ1_0 TQ2_0; 3: Q3_K IQ1_M IQ2_XXS IQ2_XS IQ2_S; 4: IQ3_XXS IQ3_S IQ4_XS;
// 0: the format is not read as codes.
int code_bits(int format);
const int8_t* code_values(int format);  // 2^bits whole numbers; codes that do not occur have 0
float code_unit(int format);            // a power of two
float code_unit_min(int format);
// IQ1_S, TQ1_0, TQ2_0: dmin is d and unit_min is unit, so a weight is
// unit d (scale value - minimum): to be computed so where a zero's sign counts.
bool codes_shifted(int format);

// block: as it lies in the file, any alignment.
void read_codes(int format, const void* block, Codes& out);

// ---- grids: points of 8 coordinates, of 4 in IQ3. IQ1_S and IQ1_M have the same.
size_t grid_bytes(int format);  // coordinates of the grid; 0: the format has none
bool grid_missing(int format);  // it has one that was not set
// coordinates: grid_bytes of them, each the number of a magnitude, the least first.
void set_grid(int format, const uint8_t* coordinates);

// 16 values of IQ4_NL and IQ4_XS, and the doubled ones of MXFP4 and NVFP4 (E2M1).
extern const int8_t kValuesNL[16];
extern const int8_t kValuesFP4[16];

}  // namespace strata
