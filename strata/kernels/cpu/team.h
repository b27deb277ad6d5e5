// The threads that run one step together.
//
// All of them walk the same phases in the same order. A phase is a set of independent
// tasks, claimed one by one, and it is over when its tasks are done: nobody waits for
// a thread that holds none. So a thread whose core is busy with something else delays
// the others by the one task that it holds, and finds its way back by skipping the
// phases that ended without it.
//
// Invariant: whatever a thread reads or writes, it does while holding a task; the
// phase cannot end meanwhile. Knows nothing of what a task does. Results must not
// depend on who ran it.
#pragma once
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace strata {

struct Team {
  // The number of the phase above the number of its next task, 32 bits each.
  alignas(64) std::atomic<uint64_t> next{0};
  alignas(64) std::atomic<int> done{0};
};

// One thread's view of the team.
class Member {
 public:
  Member(Team& team, int id, int size) : team_(team), id_(id), size_(size) {}

  int id() const { return id_; }
  int size() const { return size_; }

  // One phase: task(i) for every i < count, each by one of the threads. A thread calls
  // prepare() once before its first task.
  template <class Task, class Prepare>
  void share(int count, Task task, Prepare prepare) {
    if (count == 0) return;
    if (size_ == 1) {
      prepare();
      for (int i = 0; i < count; ++i) task(i);
      return;
    }
    bool prepared = false;
    for (int i; (i = claim(count)) >= 0;) {
      if (!prepared) prepare();
      prepared = true;
      task(i);
      finish(count);
    }
    wait();
    ++phase_;
  }

  template <class Task>
  void share(int count, Task task) {
    share(count, task, [] {});
  }

 private:
  // The next task of this thread's phase, or -1 when there is none left.
  int claim(int count) {
    uint64_t seen = team_.next.load(std::memory_order_acquire);
    while (seen >> 32 == phase_ && static_cast<int>(seen & 0xffffffffu) < count)
      if (team_.next.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel))
        return static_cast<int>(seen & 0xffffffffu);
    return -1;
  }

  // The last task to be done opens the next phase.
  void finish(int count) {
    if (team_.done.fetch_add(1, std::memory_order_acq_rel) + 1 != count) return;
    team_.done.store(0, std::memory_order_relaxed);
    team_.next.store((phase_ + 1) << 32, std::memory_order_release);
  }

  void wait() const {
    for (int spins = 0; team_.next.load(std::memory_order_acquire) >> 32 == phase_; ++spins) {
      if (spins < kSpins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
      } else {
        sched_yield();  // more runnable threads than cores: let the late one in
      }
    }
  }

  // Some tens of microseconds: longer than what a phase's last task takes on idle cores.
  static constexpr int kSpins = 2000;

  Team& team_;
  int id_;
  int size_;
  uint64_t phase_ = 0;
};

}  // namespace strata
