// The threads that run one step together.
//
// All of them walk the same program; a phase is a set of independent tasks, handed out
// one by one so that a thread on a busy core takes fewer, and ends at a barrier.
// Knows nothing of what a task does. Results must not depend on who ran it.
#pragma once
#include <sched.h>

#include <atomic>

namespace strata {

struct Team {
  alignas(64) std::atomic<int> next{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<unsigned> phase{0};
};

// One thread's view of the team.
class Member {
 public:
  Member(Team& team, int id, int size) : team_(team), id_(id), size_(size) {}

  int id() const { return id_; }
  int size() const { return size_; }

  // Runs task(i) for every i < count, then waits for the others.
  template <class Task>
  void share(int count, Task task) const {
    if (size_ == 1) {
      for (int i = 0; i < count; ++i) task(i);
      return;
    }
    // The first task of a thread is its own number: no contention in small phases.
    for (int i = id_; i < count; i = team_.next.fetch_add(1, std::memory_order_relaxed) + size_)
      task(i);
    wait();
  }

  void wait() const {
    if (size_ == 1) return;
    unsigned phase = team_.phase.load(std::memory_order_relaxed);
    if (team_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      team_.arrived.store(0, std::memory_order_relaxed);
      team_.next.store(0, std::memory_order_relaxed);
      team_.phase.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; team_.phase.load(std::memory_order_acquire) == phase; ++spins) {
      if (spins < kSpins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      } else {
        sched_yield();  // more runnable threads than cores: let the late one in
      }
    }
  }

 private:
  // Some tens of microseconds: longer than a phase's imbalance on idle cores.
  static constexpr int kSpins = 2000;

  Team& team_;
  int id_;
  int size_;
};

}  // namespace strata
