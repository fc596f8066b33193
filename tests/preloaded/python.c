// A Python that runs a script in a copy of a process that has JAX imported already.
//
//     python ARGUMENTS              as any Python; a script that may be served is run by a server
//     python --serve MODULE PATH P  a server: `serve(PATH)` of the file MODULE; P is 1 for Python's `-P`
//     python --is-supported         ends with 0 where the kernel lets a process change its command line
//
// A server imports JAX once, and forks for each script: a file, the text after `-c`, or a module after `-m`. The call of
// `serve` returns in the copies only, with no frame of Python left, and `Py_RunMain` then runs the script as it does in any
// Python. `__init__.py` says what may be served.
//
// The client stays until the script has ended, and ends as it did: with its exit code, or by its signal. The script has the
// directory, arguments, environment, limits, process group and descriptors of the client. When the client dies, the server
// kills the script.

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <linux/prctl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
// Exported by all releases, and declared for all of them by none.
extern const PyConfig *_PyInterpreterState_GetConfig(PyInterpreterState *);

enum { MAX_DESCRIPTORS = 64, MAX_SCRIPT_BYTES = 1 << 18 };

// The descriptor that a server closes when it listens; `server.py` has it, too.
enum { LISTENS = 3 };

// The folder with the sockets of servers; without it, this is any Python.
static const char FOLDER[] = "PRELOADED_PYTHON";

// What a script contains that notices when JAX is imported, or in which process it runs.
static const char *const NOTICES[] = {
    "environ",     "putenv",       "sys.modules", "importlib", "__import__", "meta_path",
    "fork",        "multiprocess", "atexit",      "warnings",  "torch",      "tensorflow",
    "gc.",         "getppid",      "signal",      "IPython",   "tracemalloc",
};

// Modules that notice nothing, and import JAX.
static const char *const MODULES[] = {"vramfit._functions._run_step"};

// How Python is started: `target` is a file, or comes after `-c` or `-m`, which is the `kind`.
struct start {
    bool safe_path; // `-P`
    char kind;      // 'f', 'c' or 'm'
    int target;
};

static bool parse_start(int argc, char **argv, struct start *start) {
    int at = 1;
    start->safe_path = at < argc && strcmp(argv[at], "-P") == 0;
    at += start->safe_path;
    start->kind = 'f';
    if (at < argc && (strcmp(argv[at], "-c") == 0 || strcmp(argv[at], "-m") == 0)) {
        start->kind = argv[at++][1];
    }
    start->target = at;
    return at < argc && (start->kind != 'f' || argv[at][0] != '-');
}

static const char *read_script(const char *path) {
    static char text[MAX_SCRIPT_BYTES];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        return NULL;
    }
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0 || length != status.st_size) {
        return NULL;
    }
    text[length] = '\0';
    return text;
}

// Says whether a server may run this.
static bool is_served(char kind, const char *target) {
    if (kind == 'm') {
        for (size_t i = 0; i < sizeof MODULES / sizeof *MODULES; i++) {
            if (strcmp(target, MODULES[i]) == 0) {
                return true;
            }
        }
        return false;
    }
    const char *text = kind == 'c' ? target : read_script(target);
    if (!text || !(strstr(text, "import jax") || strstr(text, "from jax"))) {
        return false;
    }
    for (size_t i = 0; i < sizeof NOTICES / sizeof *NOTICES; i++) {
        if (strstr(text, NOTICES[i])) {
            return false;
        }
    }
    return true;
}

static bool is_dryrun(void) {
    return getenv("VRAMFIT_RUN_CONFIG") != NULL;
}

// Variables that differ from run to run and that no import reads: all others make a server of their own.
static bool is_of_run(const char *variable) {
    static const char *const OF_RUN[] = {
        "VRAMFIT_", "PYTEST_", "GIT_",   "XDG_CACHE_HOME=", "XDG_RUNTIME_DIR=",
        "TMPDIR=",  "PWD=",    "OLDPWD=", "SHLVL=",         "_=",
    };
    for (size_t i = 0; i < sizeof OF_RUN / sizeof *OF_RUN; i++) {
        if (strncmp(variable, OF_RUN[i], strlen(OF_RUN[i])) == 0) {
            return true;
        }
    }
    return false;
}

static int compare(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static const uint64_t FNV_PRIME = UINT64_C(0x100000001b3);

// FNV-1a.
static uint64_t digest_text(uint64_t digest, const char *text) {
    do {
        digest = (digest ^ (unsigned char)*text) * FNV_PRIME;
    } while (*text++);
    return digest;
}

// Returns a name for what a server must have in common with a script.
static uint64_t name_server(bool safe_path) {
    size_t count = 0;
    while (environ[count]) {
        count++;
    }
    char **sorted = malloc(count * sizeof *sorted);
    memcpy(sorted, environ, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    uint64_t digest = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)getsid(0);
    for (size_t i = 0; i < count; i++) {
        if (!is_of_run(sorted[i])) {
            digest = digest_text(digest, sorted[i]);
        }
    }
    free(sorted);
    // A server sets the limits of each script, and no process can raise those that are hard.
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit = {0};
        getrlimit(which, &limit);
        digest = (digest ^ limit.rlim_max) * FNV_PRIME;
    }
    return digest_text(digest, is_dryrun() ? "dryrun" : "") ^ safe_path;
}

// Starts a server, and waits until it listens or has failed. Its standard streams are pipes, as those of scripts are.
static void start_server(const char *program, const char *folder, const char *socket_path, bool safe_path) {
    char module[PATH_MAX];
    int pipes[2], listens[2];
    bool runs_dryruns = is_dryrun();
    snprintf(module, sizeof module, "%s/server.py", folder);
    if (pipe(listens) != 0) {
        return;
    }
    pid_t child = fork();
    if (child != 0) {
        char byte;
        close(listens[1]);
        waitpid(child, NULL, 0);
        // The server closes its end when it listens, or ends.
        while (read(listens[0], &byte, 1) < 0 && errno == EINTR) {
        }
        close(listens[0]);
        return;
    }
    if (fork() != 0 || pipe(pipes) != 0) {
        _exit(0);
    }
    setpgid(0, 0);
    dup2(pipes[0], 0);
    dup2(pipes[1], 1);
    dup2(pipes[1], 2);
    dup2(listens[1], LISTENS);
    closefrom(LISTENS + 1);
    for (char **variable = environ; *variable;) {
        char name[256];
        size_t length = strcspn(*variable, "=");
        if (!is_of_run(*variable) || length >= sizeof name) {
            variable++;
            continue;
        }
        memcpy(name, *variable, length);
        name[length] = '\0';
        unsetenv(name);
    }
    if (runs_dryruns) {
        // A dry run of which nothing is known yet: what each of them prepares is prepared.
        setenv("VRAMFIT_RUN_CONFIG", "/dev/null", 1);
    }
    execl(program, program, "--serve", module, socket_path, safe_path ? "1" : "0", (char *)NULL);
    _exit(1);
}

// Returns a connection to the server of this environment, which the first script that needs it starts: were a script
// served or not by the time that has passed, its garbage collections would come at other times, and its bytes differ.
static int connect_server(const char *program, const char *folder, bool safe_path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t name = name_server(safe_path);
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%016lx", folder, name);
    if (length >= (int)sizeof address.sun_path) {
        return -1;
    }
    char lock_path[PATH_MAX];
    snprintf(lock_path, sizeof lock_path, "%s.lock", address.sun_path);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (connection < 0 || lock < 0 || flock(lock, LOCK_EX) != 0) {
        return -1;
    }
    bool is_connected = connect(connection, (struct sockaddr *)&address, sizeof address) == 0;
    if (!is_connected) {
        start_server(program, folder, address.sun_path, safe_path);
        is_connected = connect(connection, (struct sockaddr *)&address, sizeof address) == 0;
    }
    close(lock);
    if (!is_connected) {
        close(connection);
        return -1;
    }
    return connection;
}

static void append(char **text, size_t *length, const char *word) {
    size_t more = strlen(word) + 1;
    *text = realloc(*text, *length + more);
    memcpy(*text + *length, word, more);
    *length += more;
}

// Sends the descriptors of this process, then all else as a text; see `server.py`.
static bool send_request(int connection, const struct start *start, int argc, char **argv) {
    int descriptors[MAX_DESCRIPTORS], count = 0;
    DIR *listed = opendir("/proc/self/fd");
    for (struct dirent *entry; listed && (entry = readdir(listed));) {
        int number = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || number == dirfd(listed) || number == connection) {
            continue;
        }
        if (count == MAX_DESCRIPTORS) {
            return false;
        }
        descriptors[count++] = number;
    }
    closedir(listed);
    char *text = NULL, folder[PATH_MAX], number[32];
    size_t length = 0;
    mode_t mask = umask(0);
    umask(mask);
    snprintf(number, sizeof number, "%d", (int)mask);
    append(&text, &length, getcwd(folder, sizeof folder) ? folder : "/");
    append(&text, &length, number);
    snprintf(number, sizeof number, "%d", (int)getpgrp());
    append(&text, &length, number);
    snprintf(number, sizeof number, "%d", (int)getpid());
    append(&text, &length, number);
    snprintf(number, sizeof number, "%c%d", start->kind, start->target);
    append(&text, &length, number);
    snprintf(number, sizeof number, "%d", argc);
    append(&text, &length, number);
    for (int i = 0; i < argc; i++) {
        append(&text, &length, argv[i]);
    }
    for (char **variable = environ; *variable; variable++) {
        append(&text, &length, *variable);
    }
    uint32_t head[2 + MAX_DESCRIPTORS] = {(uint32_t)length, (uint32_t)count};
    for (int i = 0; i < count; i++) {
        head[2 + i] = (uint32_t)descriptors[i];
    }
    char control[CMSG_SPACE(sizeof descriptors)] = {0};
    struct iovec part = {head, sizeof head};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), descriptors, count * sizeof(int));
    bool is_sent = sendmsg(connection, &message, MSG_NOSIGNAL) == sizeof head;
    for (size_t sent = 0; is_sent && sent < length;) {
        ssize_t now = send(connection, text + sent, length - sent, MSG_NOSIGNAL);
        is_sent = now > 0;
        sent += is_sent ? (size_t)now : 0;
    }
    free(text);
    return is_sent;
}

// Ends as the script has ended.
static void end_like(int status) {
    if (WIFSIGNALED(status)) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

// Has a script run by a server. Returns only where there is none.
static void run_served(const char *folder, int argc, char **argv) {
    struct start start;
    // What else vramfit starts has been prepared by `sitecustomize` in a way of its own.
    const char *path = getenv("PYTHONPATH");
    bool is_prepared = path && strstr(path, "_jax_shim");
    if (!parse_start(argc, argv, &start) || is_prepared != is_dryrun() ||
        !is_served(start.kind, argv[start.target])) {
        return;
    }
    for (int stream = 0; stream < 3; stream++) {
        if (fcntl(stream, F_GETFD) < 0 || isatty(stream)) {
            return;
        }
    }
    int connection = connect_server(argv[0], folder, start.safe_path);
    if (connection < 0) {
        return;
    }
    if (!send_request(connection, &start, argc, argv)) {
        close(connection);
        return;
    }
    int32_t status;
    ssize_t length;
    do {
        length = recv(connection, &status, sizeof status, MSG_WAITALL);
    } while (length < 0 && errno == EINTR);
    if (length != sizeof status) {
        fprintf(stderr, "the server of preloaded Pythons has ended\n");
        _exit(125);
    }
    end_like(status);
}

// Makes the kernel show these words as the command line of this process, as `/proc/self/cmdline`.
static bool set_command_line(int count, char **words) {
    struct prctl_mm_map map = {.exe_fd = (uint32_t)-1};
    uint64_t *const fields[] = {
        [26] = (uint64_t *)&map.start_code, [27] = (uint64_t *)&map.end_code,
        [28] = (uint64_t *)&map.start_stack, [45] = (uint64_t *)&map.start_data,
        [46] = (uint64_t *)&map.end_data, [47] = (uint64_t *)&map.start_brk,
        [50] = (uint64_t *)&map.env_start, [51] = (uint64_t *)&map.env_end,
    };
    char stat[4096] = {0}, *line = NULL;
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file || !fread(stat, 1, sizeof stat - 1, file)) {
        return false;
    }
    fclose(file);
    // The second field is the name, in parentheses; after it they are separated by spaces.
    char *at = strrchr(stat, ')');
    for (size_t field = 2; at && field < sizeof fields / sizeof *fields; field++) {
        if (fields[field]) {
            *fields[field] = strtoull(at, NULL, 10);
        }
        at = strchr(at + 1, ' ');
    }
    map.brk = (uint64_t)sbrk(0);
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        append(&line, &length, words[i]);
    }
    map.arg_start = (uint64_t)line;
    map.arg_end = map.arg_start + length;
    return prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) == 0;
}

static void check(PyStatus status) {
    if (PyStatus_Exception(status)) {
        Py_ExitStatusException(status);
    }
}

// Returns the path under which Python runs a file; the caller frees it.
static char *absolute_path(const char *path) {
    if (*path == '/') {
        return strdup(path);
    }
    char *folder = getcwd(NULL, 0), *absolute = NULL;
    if (!folder || asprintf(&absolute, "%s/%s", folder, path) < 0) {
        exit(1);
    }
    free(folder);
    return absolute;
}

// Runs a server, and in each copy of it a script.
static int serve(int argc, char **argv) {
    char *module = argv[2], *socket_path = argv[3], *safe_path = argv[4];
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.parse_argv = 0;
    config.safe_path = *safe_path == '1';
    check(PyConfig_SetBytesArgv(&config, 1, argv));
    check(Py_InitializeFromConfig(&config));
    PyConfig_Clear(&config);

    if (!set_command_line(argc, argv)) {
        return 1; // without it no script is served
    }
    const char *text = read_script(module);
    if (!text) {
        return 1;
    }
    PyObject *names = PyDict_New();
    PyDict_SetItemString(names, "__builtins__", PyEval_GetBuiltins());
    PyObject *code = Py_CompileString(text, module, Py_file_input);
    PyObject *done = code ? PyEval_EvalCode(code, names, names) : NULL;
    PyObject *function = done ? PyDict_GetItemString(names, "serve") : NULL;
    PyObject *returned = function ? PyObject_CallFunction(function, "s", socket_path) : NULL;
    char *start;
    PyObject *arguments;
    if (!returned || !PyArg_ParseTuple(returned, "yO", &start, &arguments)) {
        PyErr_Print();
        return 1;
    }
    char kind = start[0];
    int target = atoi(start + 1), count = (int)PyList_Size(arguments);
    char **words = calloc((size_t)count + 2, sizeof *words);
    for (int i = 0; i < count; i++) {
        words[i] = strdup(PyBytes_AsString(PyList_GetItem(arguments, i)));
    }
    set_command_line(count, words);
    Py_XDECREF(code);
    Py_XDECREF(done);
    Py_DECREF(returned);
    PyDict_Clear(names);
    Py_DECREF(names);

    PyConfig *running = (PyConfig *)_PyInterpreterState_GetConfig(PyInterpreterState_Get());
    wchar_t **place = kind == 'c' ? &running->run_command : kind == 'm' ? &running->run_module : &running->run_filename;
    char *content;
    if (kind == 'f') {
        content = absolute_path(words[target]);
    } else if (asprintf(&content, kind == 'c' ? "%s\n" : "%s", words[target]) < 0) {
        return 1;
    }
    check(PyConfig_SetBytesString(running, place, content));
    free(content);
    // What Python makes the first argument: the file, or the option.
    char **first = words + target;
    if (kind != 'f') {
        *first = kind == 'c' ? "-c" : "-m";
    }
    check(PyConfig_SetBytesArgv(running, count - target, first));
    return Py_RunMain();
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--serve") == 0) {
        return serve(argc, argv);
    }
    if (argc == 2 && strcmp(argv[1], "--is-supported") == 0) {
        return set_command_line(argc, argv) ? 0 : 1;
    }
    const char *folder = getenv(FOLDER);
    if (folder && *folder) {
        run_served(folder, argc, argv);
    }
    return Py_BytesMain(argc, argv);
}
