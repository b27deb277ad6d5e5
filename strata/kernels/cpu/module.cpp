// The extension module strata.kernels._cpu. Import torch first: its OpenMP runtime
// is then the one that this module shares.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_linear(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_moe(nb::module_& m);

NB_MODULE(_cpu, m) {
  // A server that is told to end does so with its model loaded: that is no leak to report.
  nb::set_leak_warnings(false);
  bind_linear(m);
  bind_ops(m);
  bind_moe(m);
}
