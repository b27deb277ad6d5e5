// Python's view of the ops and programs: addresses as integers, the GIL released.
//
// Nothing here owns weights or pages; the caller keeps them where they are for as
// long as an op that was given their address lives.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "attention.h"
#include "delta.h"
#include "head.h"
#include "mixer.h"
#include "mlp.h"
#include "ngram.h"
#include "port.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace strata;

namespace {

using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::device::cpu, nb::c_contig>;

const float* floats(uintptr_t address) { return reinterpret_cast<const float*>(address); }

void init_port(Port* self, uintptr_t norm, float eps, int hidden, int streams) {
  *self = {floats(norm), eps, hidden, streams};
}

std::shared_ptr<Op> embed(int format, uintptr_t table, int rows, int hidden, int streams) {
  return std::make_shared<Embed>(format, reinterpret_cast<const std::byte*>(table), rows, hidden,
                                 streams);
}

std::shared_ptr<Op> attention(const Port& port, float eps, const std::vector<Linear>& qkvo,
                              uintptr_t q_norm, uintptr_t k_norm, bool whole, bool gated,
                              const std::vector<int>& heads,
                              float scale, std::shared_ptr<Rope> rope,
                              const std::vector<uintptr_t>& pages,
                              const std::vector<size_t>& page_bytes, int block, int type,
                              const std::optional<Indexer>& indexer) {
  AttentionWeights weights{port, eps, qkvo.at(0), qkvo.at(1), qkvo.at(2), qkvo.at(3),
                           floats(q_norm), floats(k_norm), whole, gated, heads.at(0), heads.at(1), heads.at(2),
                           scale, std::move(rope)};
  PagedMemory memory{reinterpret_cast<uint8_t*>(pages.at(0)),
                     reinterpret_cast<uint8_t*>(pages.at(1)), page_bytes.at(0), page_bytes.at(1),
                     block, static_cast<KvType>(type)};
  return std::make_shared<Attention>(weights, memory, indexer);
}

void init_indexer(Indexer* self, const Linear& q, const Linear& k, uintptr_t q_norm,
                  uintptr_t k_norm, float eps, const std::vector<int>& sizes,
                  const std::vector<uintptr_t>& fields, const std::vector<size_t>& strides,
                  int block) {
  IndexerWeights weights{q, k, floats(q_norm), floats(k_norm), eps, sizes.at(0), sizes.at(1),
                         {sizes.at(2), sizes.at(3)}};
  IndexMemory memory{reinterpret_cast<uint16_t*>(fields.at(0)),
                     reinterpret_cast<float*>(fields.at(1)), strides.at(0), strides.at(1)};
  new (self) Indexer(weights, memory, block);
}

std::shared_ptr<Op> delta(const Port& port, const std::vector<Linear>& linears,
                          const std::vector<uintptr_t>& vectors, float eps,
                          const std::vector<int>& sizes, bool tiled, bool sigmoid_gate,
                          const std::vector<uintptr_t>& fields,
                          const std::vector<size_t>& slot_floats) {
  DeltaWeights weights{port, linears.at(0), linears.at(1), linears.at(2), linears.at(3),
                       linears.at(4), floats(vectors.at(0)), floats(vectors.at(1)),
                       floats(vectors.at(2)), floats(vectors.at(3)), eps, sizes.at(0),
                       sizes.at(1), sizes.at(2), sizes.at(3), tiled, sigmoid_gate};
  DeltaMemory memory{reinterpret_cast<float*>(fields.at(0)),
                     reinterpret_cast<float*>(fields.at(1)), slot_floats.at(0), slot_floats.at(1)};
  return std::make_shared<Delta>(weights, memory);
}

std::shared_ptr<Op> mixer(const Port& port, const Linear& down, const Linear& up,
                          const std::vector<Linear>& inject) {
  MixerWeights weights{port, down, up, std::nullopt};
  if (!inject.empty()) weights.inject = inject.front();
  return std::make_shared<Mixer>(weights);
}

std::shared_ptr<Op> mlp(const Port& port, const Linear& gate, const Linear& up,
                        const Linear& down) {
  return std::make_shared<Mlp>(MlpWeights{port, gate, up, down});
}

std::shared_ptr<Ngram> ngram(const std::vector<int>& formats, const std::vector<uintptr_t>& parts,
                             const std::vector<int64_t>& firsts, uintptr_t fetched, int columns,
                             std::vector<int64_t> multipliers, std::vector<int64_t> sizes,
                             std::vector<int64_t> offsets, int eos, int streams, const Linear& key,
                             const Linear& value, const std::vector<uintptr_t>& vectors, float eps,
                             int kernel, int dilation, const std::vector<uintptr_t>& fields,
                             const std::vector<size_t>& slot_elements) {
  std::vector<TablePart> table;
  for (size_t i = 0; i < parts.size(); ++i)
    table.push_back(
        {formats.at(i), reinterpret_cast<const std::byte*>(parts[i]), firsts.at(i)});
  NgramWeights weights{std::move(table), reinterpret_cast<const std::byte*>(fetched), columns, std::move(multipliers), std::move(sizes),
                       std::move(offsets), eos, streams, key, value, floats(vectors.at(0)),
                       floats(vectors.at(1)), floats(vectors.at(2)), floats(vectors.at(3)), eps,
                       kernel, dilation};
  NgramMemory memory{reinterpret_cast<int32_t*>(fields.at(0)),
                     reinterpret_cast<float*>(fields.at(1)), slot_elements.at(0),
                     slot_elements.at(1)};
  return std::make_shared<Ngram>(std::move(weights), memory);
}

void ngram_rows(const Ngram& op, const Ints& tokens, const Ints& row_starts,
                const Ints& state_slots, uintptr_t rows) {
  Step step{};
  step.count = static_cast<int>(tokens.shape(0));
  step.rows = static_cast<int>(state_slots.shape(0));
  if (static_cast<int>(row_starts.shape(0)) != step.rows + 1 ||
      row_starts.data()[step.rows] != step.count)
    throw std::invalid_argument("the arrays of a plan do not fit each other");
  step.tokens = tokens.data();
  step.row_starts = row_starts.data();
  step.state_slots = state_slots.data();
  op.rows(step, reinterpret_cast<int64_t*>(rows));
}

std::shared_ptr<Op> head(const Port& port, const Linear& weight) {
  return std::make_shared<Head>(HeadWeights{port, weight});
}

std::shared_ptr<Program> program(const std::vector<std::shared_ptr<Op>>& ops, int threads) {
  return std::make_shared<Program>(
      std::vector<std::shared_ptr<const Op>>(ops.begin(), ops.end()), threads);
}

int run(Program& program, const Ints& tokens, const Ints& positions,
        const Ints& row_starts, const Table& page_table, const Ints& write_slots,
        const Ints& state_slots, const Table& captures, const Ints& sample, uintptr_t logits) {
  Step step{};
  step.count = static_cast<int>(tokens.shape(0));
  step.rows = static_cast<int>(row_starts.shape(0)) - 1;
  step.sampled = static_cast<int>(sample.shape(0));
  step.blocks = static_cast<int>(page_table.shape(1));
  if (static_cast<int>(positions.shape(0)) != step.count ||
      static_cast<int>(write_slots.shape(0)) != step.count || step.rows < 0 ||
      static_cast<int>(page_table.shape(0)) != step.rows ||
      static_cast<int>(state_slots.shape(0)) != step.rows || captures.shape(1) != 3)
    throw std::invalid_argument("the arrays of a plan do not fit each other");
  step.tokens = tokens.data();
  step.positions = positions.data();
  step.row_starts = row_starts.data();
  step.page_table = page_table.data();
  step.write_slots = write_slots.data();
  step.state_slots = state_slots.data();
  step.captures = reinterpret_cast<const Capture*>(captures.data());
  step.capture_count = static_cast<int>(captures.shape(0));
  step.sample = sample.data();
  step.logits = reinterpret_cast<float*>(logits);
  nb::gil_scoped_release unlocked;
  return program.run(step);
}

}  // namespace

void bind_ops(nb::module_& m) {
  nb::class_<Op>(m, "Op", "One operation of a step; owns nothing that it was given.");
  nb::class_<Port>(m, "Port", "How an op reads the residual stream; streams 0 is a plain norm.")
      .def("__init__", &init_port, "norm"_a, "eps"_a, "hidden"_a, "streams"_a);
  nb::class_<Rope>(m, "Rope", "Cosines and sines of positions, shared by layers.")
      .def(nb::init<std::vector<float>, float>(), "frequencies"_a, "magnitude"_a);
  nb::class_<Program>(m, "Program", "Ops run in order by one call.")
      // noconvert: the step reads the arrays themselves until it is over.
      .def("run", &run, "tokens"_a.noconvert(), "positions"_a.noconvert(),
           "row_starts"_a.noconvert(), "page_table"_a.noconvert(), "write_slots"_a.noconvert(),
           "state_slots"_a.noconvert(), "captures"_a.noconvert(), "sample"_a.noconvert(),
           "logits"_a,
           "Begins a step; logits is the address of float32 [m, vocabulary]. Returns the op that "
           "it stopped at, whose arrays must then stay, or the number of all ops: it is over.")
      .def("resume", &Program::resume, nb::call_guard<nb::gil_scoped_release>(),
           "Runs on from the op that it stopped at; returns as run does.")
      .def("written", &Program::written, "For each capture, whether all ops have written it.");
  m.def("embed", &embed, "format"_a, "table"_a, "rows"_a, "hidden"_a, "streams"_a);
  m.def("attention", &attention, "port"_a, "eps"_a, "qkvo"_a, "q_norm"_a, "k_norm"_a, "whole"_a,
        "gated"_a, "heads"_a,
        "scale"_a, "rope"_a, "pages"_a, "page_bytes"_a, "block"_a, "type"_a,
        "indexer"_a.none(),
        "heads: query heads, key heads, head_dim; pages: addresses of k and v of page 0; type: of "
        "their numbers, 0 float16, 1 bfloat16, 2 8 bits.");
  nb::class_<Indexer>(m, "Indexer", "Chooses what the queries of an attention layer see.")
      .def("__init__", &init_indexer, "q"_a, "k"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "sizes"_a,
           "fields"_a, "strides"_a, "block"_a,
           "sizes: heads, dim, budget, ratio; fields: raw keys and keys of page 0; strides: from "
           "page to page, in their elements.");
  m.def("delta", &delta, "port"_a, "linears"_a, "vectors"_a, "eps"_a, "sizes"_a, "tiled"_a,
        "sigmoid_gate"_a, "fields"_a, "slot_floats"_a,
        "linears: qkv, z, beta, alpha, out; vectors: conv [kernel, channels], decay, dt_bias, "
        "norm; sizes: key heads, value heads, dim, kernel; fields: conv and state of slot 0.");
  m.def("mixer", &mixer, "port"_a, "down"_a, "up"_a, "inject"_a, "inject: one or none.");
  m.def("mlp", &mlp, "port"_a, "gate"_a, "up"_a, "down"_a);
  nb::class_<Ngram, Op>(m, "Ngram", "Of a step whose rows are fetched before it.")
      .def("rows", &ngram_rows, "tokens"_a, "row_starts"_a, "state_slots"_a, "rows"_a,
           "The table's rows for a step -> int64 [tokens, heads] at the address `rows`.")
      .def("set_scale", &Ngram::set_scale, "scale"_a)
      .def("set_slots", [](Ngram& op, uintptr_t slots) {
        op.set_slots(reinterpret_cast<const int32_t*>(slots));
      }, "slots"_a, "Where they lie: the address of int32 [tokens, heads], for the next step.");
  m.def("ngram", &ngram, "formats"_a, "parts"_a, "firsts"_a, "fetched"_a, "columns"_a, "multipliers"_a,
        "sizes"_a, "offsets"_a, "eos"_a, "streams"_a, "key"_a, "value"_a, "vectors"_a, "eps"_a,
        "kernel"_a, "dilation"_a, "fields"_a, "slot_elements"_a,
        "formats, parts, firsts: of the table's parts, with the numbers of their first rows; "
        "fetched: the address of the fetched rows, or 0; "
        "vectors: norm_key, norm_query, norm_conv, conv [kernel, width]; fields: history and conv "
        "of slot 0.");
  m.def("head", &head, "port"_a, "weight"_a);
  m.def("program", &program, "ops"_a, "threads"_a);
}
