// Loaded into a process with LD_PRELOAD: sends it a signal before a certain call of the C library.
//
// STOP_BEFORE=fsync:2:9 sends signal 9 before the second call of `fsync`, from any thread.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(const char *name) {
    static atomic_int calls;
    const char *given = getenv("STOP_BEFORE");
    char function[32];
    int number, signal;
    if (!given || sscanf(given, "%31[^:]:%d:%d", function, &number, &signal) != 3) {
        fprintf(stderr, "STOP_BEFORE is not `function:number:signal`\n");
        abort();
    }
    if (strcmp(name, function) == 0 && atomic_fetch_add(&calls, 1) + 1 == number) {
        kill(getpid(), signal);
    }
}

#define COUNTED(result, name, parameters, ...)                                                     \
    result name parameters {                                                                       \
        result (*original) parameters = dlsym(RTLD_NEXT, #name);                                   \
        count(#name);                                                                              \
        return original(__VA_ARGS__);                                                              \
    }

COUNTED(int, fdatasync, (int file), file)
COUNTED(int, fsync, (int file), file)
COUNTED(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), file, data, size,
        at)
