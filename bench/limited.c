/* Programs that find a smaller processor: loaded before them (LD_PRELOAD), hides instructions.
 *
 * Libraries ask CPUID what the processor has.  Linux can make that instruction a fault
 * (arch_prctl ARCH_CPUID, "CPUID faulting" in Intel's manual, volume 3, 2.5), which a handler
 * answers here: with what the processor says, less what RELAXVM_BENCH_LIMIT leaves out.  "avx2"
 * leaves out AVX-512, VNNI and AMX; "avx512" leaves out VNNI, bfloat16, float16 and AMX.  The
 * setting is inherited by threads and forks; a program that is executed loads this file again.
 *
 * The C library has chosen its own functions before: copies of memory may still use AVX-512. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_CPUID 0x1012
#define BIT(n) (1u << (n))

typedef struct {
    uint32_t eax, ebx, ecx, edx;
} Registers;

typedef struct {
    uint32_t leaf, subleaf;
    Registers avx512; /* what the limit "avx512" leaves out */
    Registers avx2;   /* what the limit "avx2" leaves out as well */
} Hidden;

static const Hidden hidden[] = {
    {7, 0,
     {.ecx = BIT(11), .edx = BIT(22) | BIT(23) | BIT(24) | BIT(25)}, /* VNNI, FP16, AMX */
     {.ebx = BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31),
      .ecx = BIT(1) | BIT(6) | BIT(12) | BIT(14),
      .edx = BIT(2) | BIT(3) | BIT(8)}},
    {7, 1,
     {.eax = BIT(4) | BIT(5) | BIT(21) | BIT(23), /* AVX-VNNI, BF16, AMX-FP16, AVX-IFMA */
      .edx = BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)},
     {0}},
};

static int is_avx2;

static Registers answer(uint32_t leaf, uint32_t subleaf) {
    Registers of;
    syscall(SYS_arch_prctl, ARCH_CPUID, 1);
    __asm__ volatile("cpuid"
                     : "=a"(of.eax), "=b"(of.ebx), "=c"(of.ecx), "=d"(of.edx)
                     : "a"(leaf), "c"(subleaf));
    syscall(SYS_arch_prctl, ARCH_CPUID, 0);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        if (hidden[i].leaf != leaf || hidden[i].subleaf != subleaf) continue;
        for (int j = 0; j <= is_avx2; j++) {
            const Registers *gone = j ? &hidden[i].avx2 : &hidden[i].avx512;
            of.eax &= ~gone->eax;
            of.ebx &= ~gone->ebx;
            of.ecx &= ~gone->ecx;
            of.edx &= ~gone->edx;
        }
    }
    return of;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)at[REG_RIP];
    (void)info;
    if (at[REG_RIP] == 0 || code[0] != 0x0f || code[1] != 0xa2) { /* not CPUID: a real fault */
        signal(number, SIG_DFL);
        return;
    }
    Registers of = answer((uint32_t)at[REG_RAX], (uint32_t)at[REG_RCX]);
    at[REG_RAX] = of.eax;
    at[REG_RBX] = of.ebx;
    at[REG_RCX] = of.ecx;
    at[REG_RDX] = of.edx;
    at[REG_RIP] += 2;
}

__attribute__((constructor)) static void limit(void) {
    const char *wanted = getenv("RELAXVM_BENCH_LIMIT");
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (!wanted || (strcmp(wanted, "avx2") && strcmp(wanted, "avx512"))) return;
    is_avx2 = !strcmp(wanted, "avx2");
    if (sigaction(SIGSEGV, &action, NULL) || syscall(SYS_arch_prctl, ARCH_CPUID, 0)) {
        static const char message[] = "limited.c: this kernel or processor cannot hide CPUID\n";
        if (write(2, message, sizeof message - 1) < 0) _exit(3);
        _exit(2);
    }
}
