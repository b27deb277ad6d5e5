#include "tiered.h"

#include <stdexcept>

namespace strata {

MixtureBlock TieredMoe::block(const Step& step, std::byte* scratch, int id, int threads) const {
  Carver carver(scratch);
  return {weights_, step, carver, 0, step.count, id, threads};
}

size_t TieredMoe::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  MixtureBlock(weights_, step, carver, 0, step.count, 0, threads);
  return carver.used();
}

void TieredMoe::prepare(const Step&) const {
  stopped_.store(false, std::memory_order_relaxed);
  begun_ = false;
}

// Notes the choice and the guess, and whether the step must stop for them.
void TieredMoe::decide(const MixtureBlock& block, int tokens) const {
  const size_t count = static_cast<size_t>(tokens) * weights_.top_k;
  std::copy_n(block.routes().chosen(), count, chosen_);
  bool here = own_.hold(chosen_, count);
  if (weights_.ahead) {
    std::copy_n(block.guess(), count, guess_);
    here = here && next_.hold(guess_, count);
  }
  fed_.assign(block.routes().active(), false);
  stopped_.store(!here, std::memory_order_relaxed);
}

void TieredMoe::run(Member& member, const Step& step, std::byte* scratch) const {
  if (step.count == 0) return;
  MixtureBlock block = this->block(step, scratch, member.id(), member.size());
  block.route(member, [&] { decide(block, step.count); });
  // The phase is over: every member sees one answer, which stands until the step ends.
  if (stopped()) return;
  block.feed(member, own_.at);
  block.combine(member);
}

Wave TieredMoe::wave(const Step& step, std::byte* scratch, const Slots& slots,
                     int threads) const {
  const MixtureBlock block = this->block(step, scratch, 0, threads);
  std::vector<std::pair<int, uintptr_t>> experts;
  for (int i = 0; i < slots.count; ++i) {
    const int unit = block.routes().unit_of(slots.experts[i]);
    if (unit < 0 || fed_[unit])
      throw std::invalid_argument("a wave holds an expert that is not wanted, or no more");
    fed_[unit] = true;
    experts.emplace_back(unit, slots.arena + slots.stride * slots.slots[i]);
  }
  const bool first = !begun_;
  begun_ = true;
  return block.wave(experts, first, threads);
}

void TieredMoe::feed(Member& member, const Step& step, std::byte* scratch,
                     const Wave& wave) const {
  block(step, scratch, member.id(), member.size()).feed(member, wave);
}

bool TieredMoe::whole() const {
  return begun_ && std::all_of(fed_.begin(), fed_.end(), [](bool fed) { return fed; });
}

void TieredMoe::finish(Member& member, const Step& step, std::byte* scratch) const {
  block(step, scratch, member.id(), member.size()).combine(member);
}

}  // namespace strata
