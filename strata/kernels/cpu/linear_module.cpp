// Python's view of linear.h: raw pointers as integers, the GIL released.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <stdexcept>

#include "codes.h"
#include "isa.h"
#include "linear.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace strata;

namespace {

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (Isa isa : kBestFirst) {
    if (isa_available(isa)) names.emplace_back(isa_name(isa));
  }
  return names;
}

void use_isa(const std::string& name) {
  for (Isa isa : kBestFirst) {
    if (name == isa_name(isa) && isa_available(isa)) return set_active_isa(isa);
  }
  throw std::invalid_argument("this processor or build has no " + name + " kernels");
}

void check(int format, int n, int k) {
  if (!is_supported(format)) throw std::invalid_argument("unsupported weight format");
  if (grid_missing(format)) throw std::invalid_argument("the grid of this format was not set");
  if (n < 1 || k < 1 || k % block_size(format)) throw std::invalid_argument("impossible shape");
}

void give_grid(int format, nb::bytes coordinates) {
  if (coordinates.size() == 0 || coordinates.size() != grid_bytes(format)) {
    throw std::invalid_argument("no grid of this format has this size");
  }
  set_grid(format, static_cast<const uint8_t*>(coordinates.data()));
}

void init_linear(Linear* self, int format, int n, int k, uintptr_t tiles, uintptr_t bias,
                 nb::handle) {
  check(format, n, k);
  if (tiles % 64) throw std::invalid_argument("tiles must be aligned to 64 bytes");
  *self = {format, n, k, reinterpret_cast<const uint8_t*>(tiles),
           reinterpret_cast<const float*>(bias)};
}

void pack_rows(int format, uintptr_t gguf_rows, int n, int k, uintptr_t tiles) {
  check(format, n, k);
  nb::gil_scoped_release unlocked;
  pack(format, reinterpret_cast<const void*>(gguf_rows), n, k, reinterpret_cast<uint8_t*>(tiles));
}

void matmul(const Linear& linear, uintptr_t x, int rows, uintptr_t y, int threads) {
  nb::gil_scoped_release unlocked;
  const ActKind kind = act_kind(linear.format);
  const size_t stride = act_bytes(kind, linear.k);
  uint8_t* act = static_cast<uint8_t*>(std::aligned_alloc(64, stride * rows + 64));
  if (!act) throw std::bad_alloc();
  const float* in = reinterpret_cast<const float*>(x);
  float* out = reinterpret_cast<float*>(y);
  const int tasks = matmul_tasks(linear, rows);
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int r = 0; r < rows; ++r) {
      quantise_row(kind, in + size_t(r) * linear.k, linear.k, act + r * stride);
    }
#pragma omp for schedule(dynamic)
    for (int t = 0; t < tasks; ++t) matmul_task(linear, act, nullptr, rows, out, linear.n, t);
  }
  std::free(act);
}

void dequantise_rows(int format, uintptr_t gguf_rows, int rows, int k, uintptr_t out) {
  check(format, rows, k);
  nb::gil_scoped_release unlocked;
  const uint8_t* from = reinterpret_cast<const uint8_t*>(gguf_rows);
  float* to = reinterpret_cast<float*>(out);
  for (int r = 0; r < rows; ++r) {
    dequantise_row(format, from + r * row_bytes(format, k), k, to + size_t(r) * k);
  }
}

}  // namespace

void bind_linear(nb::module_& m) {
  m.def("isas", &isas, "Instruction sets that can be used here, the best first.");
  m.def("active_isa", [] { return std::string(isa_name(active_isa())); });
  m.def("use_isa", &use_isa, "name"_a, "Choose one; before anything is packed.");
  m.def("tile_rows", &tile_rows);
  m.def("set_grid", &give_grid, "format"_a, "coordinates"_a,
        "The points of an IQ format (codes.h), before any row of it is read.");
  m.def("packed_bytes",
        [](int format, int n, int k) { check(format, n, k); return packed_bytes(format, n, k); },
        "format"_a, "n"_a, "k"_a);
  m.def("pack", &pack_rows, "format"_a, "gguf_rows"_a, "n"_a, "k"_a, "tiles"_a,
        "Interleave n GGUF rows at address gguf_rows into tiles, 64-byte aligned.");
  m.def("matmul", &matmul, "linear"_a, "x"_a, "rows"_a, "y"_a, "threads"_a,
        "y [rows, n] = x [rows, k] W^T + bias, float32 at the given addresses.");
  m.def("dequantise_rows", &dequantise_rows, "format"_a, "gguf_rows"_a, "rows"_a, "k"_a, "out"_a);
  nb::class_<Linear>(m, "Linear", "A packed weight matrix. Owns no memory; keeps `owner` alive.")
      .def("__init__", &init_linear, "format"_a, "n"_a, "k"_a, "tiles"_a, "bias"_a,
           "owner"_a.none(),
           nb::keep_alive<1, 7>())
      .def_ro("format", &Linear::format)
      .def_ro("n", &Linear::n)
      .def_ro("k", &Linear::k);
}
