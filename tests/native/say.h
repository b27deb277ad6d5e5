// Lines of text without a standard library, which a bare program (bare.cpp) has not.
#pragma once
#include <cstdint>

extern "C" int puts(const char* text);

// Words and whole numbers; printed when it goes out of scope.
class Line {
 public:
  ~Line() {
    text_[length_] = 0;
    puts(text_);
  }
  Line& operator<<(const char* word) {
    while (*word && length_ < kMost) text_[length_++] = *word++;
    return *this;
  }
  Line& operator<<(long number) {
    if (number < 0) return *this << "-" << -number;
    char digits[24];
    int at = 23;
    digits[at] = 0;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while (number /= 10);
    return *this << digits + at;
  }
  Line& operator<<(int number) { return *this << static_cast<long>(number); }

 private:
  static constexpr int kMost = 250;
  char text_[kMost + 1];
  int length_ = 0;
};
