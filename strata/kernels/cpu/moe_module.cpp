// Python's view of the mixtures of experts.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "moe.h"
#include "tiered.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace strata;

namespace {

using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

void init_form(ExpertForm* self, const std::vector<int>& formats, int ffn, int hidden,
               const std::vector<size_t>& offsets) {
  *self = {{formats.at(0), ffn, hidden, offsets.at(0)},
           {formats.at(1), ffn, hidden, offsets.at(1)},
           {formats.at(2), hidden, ffn, offsets.at(2)}};
}

MixtureWeights weights(const Port& port, const Linear& router, int top_k, bool normalise,
                       const ExpertForm& form, const std::optional<ExpertForm>& shared,
                       uintptr_t shared_place, const std::optional<Linear>& shared_gate) {
  MixtureWeights weights{port, router, top_k, normalise, form, {}, shared_gate, {}};
  if (shared) weights.shared = {*shared, shared_place};
  return weights;
}

std::shared_ptr<TieredMoe> tiered(const MixtureWeights& weights, uintptr_t places,
                                  const std::optional<Linear>& ahead, uintptr_t ahead_places) {
  MixtureWeights own = weights;
  own.ahead = ahead;
  return std::make_shared<TieredMoe>(own, Places{reinterpret_cast<const int64_t*>(places)},
                                     Places{reinterpret_cast<const int64_t*>(ahead_places)});
}

void keep(TieredMoe& op, uintptr_t chosen, uintptr_t guess) {
  op.keep(reinterpret_cast<int32_t*>(chosen), reinterpret_cast<int32_t*>(guess));
}

void feed(TieredMoe& op, Program& program, uintptr_t arena, size_t stride, const Ints& experts,
          const Ints& slots) {
  if (experts.shape(0) != slots.shape(0))
    throw std::invalid_argument("a wave needs a slot for each expert");
  const Slots given{arena, stride, experts.data(), slots.data(),
                    static_cast<int>(experts.shape(0))};
  nb::gil_scoped_release unlocked;
  const Wave wave = op.wave(program.step(), program.scratch(), given, program.threads());
  program.aside([&](Member& member, const Step& step, std::byte* scratch) {
    op.feed(member, step, scratch, wave);
  });
}

}  // namespace

void bind_moe(nb::module_& m) {
  nb::class_<ExpertForm>(m, "ExpertForm", "What lies where in a packed expert.")
      .def("__init__", &init_form, "formats"_a, "ffn"_a, "hidden"_a, "offsets"_a,
           "Of gate, up and down; offsets in bytes.");
  nb::class_<MixtureWeights>(m, "MixtureWeights", "A mixture without its routed experts.")
      .def("__init__", [](MixtureWeights* self, const Port& port, const Linear& router, int top_k,
                          bool normalise, const ExpertForm& form,
                          const std::optional<ExpertForm>& shared, uintptr_t shared_place,
                          const std::optional<Linear>& shared_gate) {
        new (self) MixtureWeights(weights(port, router, top_k, normalise, form, shared,
                                          shared_place, shared_gate));
      }, "port"_a, "router"_a, "top_k"_a, "normalise"_a, "form"_a, "shared"_a.none(),
         "shared_place"_a, "shared_gate"_a.none());
  nb::class_<TieredMoe, Op>(m, "TieredMoe", "A mixture that may stop a step to be fed in waves.")
      .def("keep", &keep, "chosen"_a, "guess"_a,
           "Where to leave the choice and the guess, int32 [tokens, top_k].")
      .def("feed", &feed, "program"_a, "arena"_a, "stride"_a, "experts"_a, "slots"_a,
           "A wave, while the program is stopped at this op.")
      .def("whole", &TieredMoe::whole, "Whether all that was chosen has been fed.");
  m.def("moe", [](const MixtureWeights& weights, const std::vector<int64_t>& places) {
    return std::shared_ptr<Op>(std::make_shared<Moe>(weights, places));
  }, "weights"_a, "places"_a, "places: the address of each expert.");
  m.def("tiered_moe", &tiered, "weights"_a, "places"_a, "ahead"_a.none(), "ahead_places"_a,
        "places: the address of int64 [experts], each an expert's address or 0; ahead: the next "
        "mixture's router, and its places.");
}
