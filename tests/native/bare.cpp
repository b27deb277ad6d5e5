// What a program for Linux on arm64 needs where there is no C library for it: a cross
// compiler brings the headers, and building the library takes longer than the whole test.
// Knows nothing of the program. Compiled with -fno-builtin, or memcpy would call itself.
#include <stddef.h>
#include <stdint.h>

namespace {

constexpr long kWrite = 64, kExitGroup = 94;
const unsigned long* auxiliary;

long call(long number, long a, const void* b, long c) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register const void* x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}

[[noreturn]] void leave(int status) {
  call(kExitGroup, status, nullptr, 0);
  __builtin_unreachable();
}

}  // namespace

int main();

extern "C" [[noreturn]] void abort();
namespace std {
[[noreturn]] void terminate() noexcept { abort(); }
}  // namespace std

extern "C" {

void* memcpy(void* to, const void* from, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<char*>(to)[i] = static_cast<const char*>(from)[i];
  return to;
}
void* memset(void* to, int value, size_t n) {
  for (size_t i = 0; i < n; ++i) static_cast<char*>(to)[i] = static_cast<char>(value);
  return to;
}
int memcmp(const void* a, const void* b, size_t n) {
  const unsigned char *p = static_cast<const unsigned char*>(a),
                      *q = static_cast<const unsigned char*>(b);
  for (size_t i = 0; i < n; ++i)
    if (p[i] != q[i]) return p[i] - q[i];
  return 0;
}
int puts(const char* text) {
  size_t length = 0;
  while (text[length]) ++length;
  call(kWrite, 1, text, static_cast<long>(length));
  call(kWrite, 1, "\n", 1);
  return 0;
}
[[noreturn]] void abort() { leave(134); }

// Pairs of (type, value), ended by type 0.
unsigned long getauxval(unsigned long type) {
  for (const unsigned long* at = auxiliary; *at; at += 2)
    if (*at == type) return at[1];
  return 0;
}

// Nothing throws; unoptimised code asks for these all the same.
void __cxa_begin_catch(void*) { abort(); }
void __gxx_personality_v0() { abort(); }

using Constructor = void (*)();
extern Constructor __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor __init_array_end[] __attribute__((visibility("hidden")));

// stack: the number of arguments, they and a null, the environment and a null, the
// auxiliary vector.
[[noreturn]] void begin(const unsigned long* stack) {
  auxiliary = stack + 1 + *stack + 1;
  while (*auxiliary++) {}
  for (Constructor* each = __init_array_start; each != __init_array_end; ++each) (*each)();
  leave(main());
}

asm(".globl _start\n_start:\n  mov x29, #0\n  mov x0, sp\n  b begin\n");

}  // extern "C"
