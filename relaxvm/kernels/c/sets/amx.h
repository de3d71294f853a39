/* Whether a process may use AMX: tiles of 16 rows of 64 bytes, and instructions that multiply them.  Intel, "Intel 64 and
 * IA-32 Architectures Optimization Reference Manual", chapter 20, describes it.
 */
#ifndef RELAXVM_KERNELS_AMX_H
#define RELAXVM_KERNELS_AMX_H

#if defined(__AVX512F__) && defined(__linux__) && defined(__x86_64__)
#define HAS_AMX 1
#include <cpuid.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILE_ROWS 16

enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} TileShapes;

/* Linux saves the tiles of a process that has asked for them.  The answer is kept in `known`: 1 or -1. */
static int may_use_tiles(unsigned kind, int *known) {
    enum { REQUEST = 0x1023, TILES = 18 };
    int found = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (!found) {
        unsigned a, b, c, d, wanted = kind | AMX_TILE;
        int is_there = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & wanted) == wanted;
        found = is_there && syscall(SYS_arch_prctl, REQUEST, TILES) == 0 ? 1 : -1;
        __atomic_store_n(known, found, __ATOMIC_RELAXED);
    }
    return found > 0;
}
#endif

#endif
