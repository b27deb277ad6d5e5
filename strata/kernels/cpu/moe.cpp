#include "moe.h"

namespace strata {

namespace {
constexpr int kTokens = 512;  // of a block
}

size_t Moe::scratch(const Step& step, int threads) const {
  Carver carver(nullptr);
  MixtureBlock(weights_, step, carver, 0, std::min(kTokens, step.count), 0, threads);
  return carver.used();
}

void Moe::run(Member& member, const Step& step, std::byte* scratch) const {
  for (int first = 0; first < step.count; first += kTokens) {
    Carver carver(scratch);
    MixtureBlock block(weights_, step, carver, first, std::min(kTokens, step.count - first),
                       member.id(), member.size());
    block.route(member, [] {});
    block.feed(member, places_.data());
    block.combine(member);
  }
}

}  // namespace strata
