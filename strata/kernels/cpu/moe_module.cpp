// Python's view of the mixture of experts.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "moe.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace strata;

namespace {

// first: expert 0's matrix.
ExpertMatrix expert_matrix(const Linear& first, size_t stride) {
  return {first.format, first.n, first.k, first.tiles, stride};
}

std::shared_ptr<Op> moe(const Port& port, const Linear& router, int top_k, bool normalise,
                        const std::vector<ExpertMatrix>& experts,
                        const std::vector<ExpertMatrix>& shared,
                        const std::optional<Linear>& shared_gate) {
  MoeWeights weights{port, router, top_k, normalise,
                     {experts.at(0), experts.at(1), experts.at(2)}, {}, shared_gate};
  if (!shared.empty()) weights.shared = {shared.at(0), shared.at(1), shared.at(2)};
  return std::make_shared<Moe>(weights);
}

}  // namespace

void bind_moe(nb::module_& m) {
  nb::class_<ExpertMatrix>(m, "ExpertMatrix", "One matrix of all experts, at equal distances.")
      .def("__init__", [](ExpertMatrix* self, const Linear& first, size_t stride) {
        *self = expert_matrix(first, stride);
      }, "first"_a, "stride"_a, nb::keep_alive<1, 2>());
  m.def("moe", &moe, "port"_a, "router"_a, "top_k"_a, "normalise"_a, "experts"_a,
        "shared"_a, "shared_gate"_a.none(),
        "experts: gate, up, down; shared: the same or nothing.");
}
