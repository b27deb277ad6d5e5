/* How fast memory can be read: bytes a second of the best of some passes over 512 MB in huge pages,
   by as many threads as asked for. Each reads its part in four streams with prefetching, or in one:
   what is faster differs between machines. Prints one number.

       cc -O3 -march=native -pthread read_rate.c -o read_rate && ./read_rate THREADS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PASSES = 6, AHEAD = 2048, LINE = 64 };
static const size_t SIZE = (size_t)512 << 20;

typedef unsigned long long Vector __attribute__((vector_size(32)));
typedef struct {
    const char* start;
    size_t size;
    int streams;
    Vector sum;
} Part;

static void* read_part(void* argument) {
    Part* part = argument;
    const size_t each = part->size / part->streams;
    Vector sums[8] = {{0}};
    for (size_t at = 0; at < each; at += 4 * LINE / part->streams)
        for (int line = 0; line < 4; line++) {
            const char* place = part->streams == 4 ? part->start + line * each + at
                                                   : part->start + at + line * LINE;
            __builtin_prefetch(place + AHEAD);
            sums[2 * line] ^= *(const Vector*)place;
            sums[2 * line + 1] ^= *(const Vector*)(place + 32);
        }
    for (int i = 1; i < 8; i++) sums[0] ^= sums[i];
    part->sum = sums[0];
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(int count, char** words) {
    const int threads = count > 1 ? atoi(words[1]) : 1;
    if (threads < 1 || threads > 256) return 2;
    char* memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, SIZE, MADV_HUGEPAGE);
    for (size_t at = 0; at < SIZE; at += LINE) memory[at] = (char)at;
    const size_t size = SIZE / threads / 4096 * 4096;
    double best = 0;
    unsigned long long seen = 0;
    for (int pass = 0; pass < 2 * PASSES; pass++) {
        pthread_t running[256];
        Part parts[256];
        const double began = now();
        for (int i = 0; i < threads; i++) {
            parts[i] = (Part){memory + i * size, size, pass % 2 ? 4 : 1, {0}};
            if (pthread_create(&running[i], NULL, read_part, &parts[i])) return 1;
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(running[i], NULL);
            seen ^= parts[i].sum[0];
        }
        const double rate = size * (double)threads / (now() - began);
        if (rate > best) best = rate;
    }
    fprintf(stderr, "checksum %llx\n", seen);
    printf("%.0f\n", best);
    return 0;
}
