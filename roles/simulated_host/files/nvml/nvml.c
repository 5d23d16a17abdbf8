/*
 * A stand-in for libnvidia-ml.so.1: the part of NVML's interface that fleet tools use, answered from a folder of text
 * files instead of a driver. Every call reads the files afresh, so what a test writes is seen by the next call.
 *
 * The folder is $DDTREE_SIM_STATE, else ../state next to this library. It holds
 *   gpus.conf         key and value per line; "gpu" starts the next GPU
 *   nvml_faults.conf  SCOPE FUNCTION ERROR per line (optional); see docs/simulator.md
 *   holders/PID       one process that holds VRAM: key and value per line
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define MAX_GPUS 64
#define MAX_HOLDERS 1024
#define LINE_SIZE 512
#define MIB (1024ULL * 1024ULL)
#define NOT_AVAILABLE UINT64_MAX
#define NO_INSTANCE UINT_MAX
#define MEMORY_V2 0x02000028u
#define TEMPERATURE_V1 0x0100000Cu

typedef int nvmlReturn_t;
enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, IRQ_ISSUE = 11, LIBRARY_NOT_FOUND = 12,
    FUNCTION_NOT_FOUND = 13, CORRUPTED_INFOROM = 14, GPU_IS_LOST = 15, RESET_REQUIRED = 16, OPERATING_SYSTEM = 17,
    LIB_RM_VERSION_MISMATCH = 18, IN_USE = 19, MEMORY = 20, NO_DATA = 21, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

static const struct { nvmlReturn_t code; const char *name; const char *text; } ERRORS[] = {
    {OK, "SUCCESS", "Success"},
    {UNINITIALIZED, "UNINITIALIZED", "Uninitialized"},
    {INVALID_ARGUMENT, "INVALID_ARGUMENT", "Invalid Argument"},
    {NOT_SUPPORTED, "NOT_SUPPORTED", "Not Supported"},
    {NO_PERMISSION, "NO_PERMISSION", "Insufficient Permissions"},
    {NOT_FOUND, "NOT_FOUND", "Not Found"},
    {INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {TIMEOUT, "TIMEOUT", "Timeout"},
    {IRQ_ISSUE, "IRQ_ISSUE", "Interrupt Request Issue"},
    {LIBRARY_NOT_FOUND, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {CORRUPTED_INFOROM, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {GPU_IS_LOST, "GPU_IS_LOST", "GPU is lost"},
    {RESET_REQUIRED, "RESET_REQUIRED", "GPU requires restart"},
    {OPERATING_SYSTEM, "OPERATING_SYSTEM", "The operating system has blocked the request."},
    {LIB_RM_VERSION_MISMATCH, "LIB_RM_VERSION_MISMATCH", "RM has detected an NVML/RM version mismatch."},
    {IN_USE, "IN_USE", "In use by another client"},
    {MEMORY, "MEMORY", "Insufficient Memory"},
    {NO_DATA, "NO_DATA", "No data"},
    {ARGUMENT_VERSION_MISMATCH, "ARGUMENT_VERSION_MISMATCH", "The provided version is invalid/unsupported"},
    {UNKNOWN, "UNKNOWN", "Unknown Error"},
};
#define ERROR_COUNT (sizeof ERRORS / sizeof ERRORS[0])

struct gpu {
    char name[96], uuid[80], pci[32];
    unsigned long long total, reserved;
};

struct host {
    char driver[80], nvml[80];
    int cuda;
    unsigned count;
    struct gpu gpus[MAX_GPUS];
};

struct holder {
    unsigned pid;
    unsigned long long bytes;
    int compute, alive; /* not alive: its memory is still being given back */
};

typedef struct nvmlDevice_st *nvmlDevice_t;
struct nvmlDevice_st { unsigned index; };
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned version; int sensorType; int temperature; } nvmlTemperature_v1_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned initialized; /* nvmlInit and nvmlShutdown count */
static struct nvmlDevice_st devices[MAX_GPUS];

/* ---- the state folder ------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4)))
static int join(char *out, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, size, format, args);
    va_end(args);
    return length >= 0 && (size_t)length < size;
}

static int state_path(char *out, size_t size, const char *name)
{
    const char *given = getenv("DDTREE_SIM_STATE");
    if (given && *given)
        return join(out, size, "%s/%s", given, name);
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr((void *)&ERRORS, &info) || !info.dli_fname || !realpath(info.dli_fname, real))
        return 0;
    char *slash = strrchr(real, '/');
    if (!slash)
        return 0;
    *slash = '\0';
    return join(out, size, "%s/../state/%s", real, name);
}

/* Splits "key value..." in place; returns 0 for an empty line, a comment or one without a value. */
static int split(char *line, char **key, char **value)
{
    while (isspace((unsigned char)*line))
        line++;
    line[strcspn(line, "\r\n")] = '\0';
    if (!*line || *line == '#')
        return 0;
    *key = line;
    line += strcspn(line, " \t");
    if (!*line)
        return 0;
    *line++ = '\0';
    while (*line == ' ' || *line == '\t')
        line++;
    *value = line;
    return *line != '\0';
}

static void put(char *out, size_t size, const char *text)
{
    size_t length = strnlen(text, size - 1);
    memcpy(out, text, length);
    out[length] = '\0';
}

static unsigned long long number(const char *text, unsigned long long otherwise)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return errno || end == text || *text == '-' ? otherwise : value;
}

static unsigned long long mib(const char *text)
{
    unsigned long long value = number(text, 0);
    return value > ULLONG_MAX / MIB ? ULLONG_MAX / 4 : value * MIB;
}

static nvmlReturn_t read_host(struct host *host)
{
    char path[PATH_MAX], line[LINE_SIZE], *key, *value;
    memset(host, 0, sizeof *host);
    if (!state_path(path, sizeof path, "gpus.conf"))
        return DRIVER_NOT_LOADED;
    FILE *file = fopen(path, "re");
    if (!file)
        return DRIVER_NOT_LOADED;
    struct gpu *gpu = NULL;
    while (fgets(line, sizeof line, file)) {
        if (!split(line, &key, &value))
            continue;
        if (!strcmp(key, "gpu")) {
            gpu = host->count < MAX_GPUS ? &host->gpus[host->count++] : NULL;
        } else if (!gpu) {
            if (!strcmp(key, "driver"))
                put(host->driver, sizeof host->driver, value);
            else if (!strcmp(key, "nvml"))
                put(host->nvml, sizeof host->nvml, value);
            else if (!strcmp(key, "cuda"))
                host->cuda = (int)(number(value, 0) % 1000000);
        } else if (!strcmp(key, "name")) {
            put(gpu->name, sizeof gpu->name, value);
        } else if (!strcmp(key, "uuid")) {
            put(gpu->uuid, sizeof gpu->uuid, value);
        } else if (!strcmp(key, "pci")) {
            put(gpu->pci, sizeof gpu->pci, value);
        } else if (!strcmp(key, "total_mib")) {
            gpu->total = mib(value);
        } else if (!strcmp(key, "reserved_bytes")) {
            gpu->reserved = number(value, 0);
        }
    }
    fclose(file);
    return OK;
}

/* The error a fault names for this function on this GPU (-1: the library itself); the last line that fits wins. */
static nvmlReturn_t fault(int gpu, const char *function)
{
    char path[PATH_MAX], line[LINE_SIZE], scope[32], name[64], error[64];
    nvmlReturn_t found = OK;
    if (!state_path(path, sizeof path, "nvml_faults.conf"))
        return OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return OK;
    while (fgets(line, sizeof line, file)) {
        char *text = line;
        int fits;
        if (!strncmp(line, "gpu ", 4)) { /* "gpu 3 memory GPU_IS_LOST" */
            text = line + 4;
            if (sscanf(text, "%31s %63s %63s", scope, name, error) != 3)
                continue;
            fits = gpu >= 0 && (!strcmp(scope, "*") || (isdigit((unsigned char)*scope) && number(scope, MAX_GPUS) == (unsigned)gpu));
        } else { /* "library init DRIVER_NOT_LOADED" */
            if (sscanf(text, "%31s %63s %63s", scope, name, error) != 3)
                continue;
            fits = !strcmp(scope, "library") && gpu < 0;
        }
        if (!fits || (strcmp(name, function) && (strcmp(name, "all") || !strcmp(function, "process_memory"))))
            continue;
        for (size_t i = 0; i < ERROR_COUNT; i++)
            if (!strcmp(error, ERRORS[i].name))
                found = ERRORS[i].code;
    }
    fclose(file);
    return found;
}

/* Start time of a process in clock ticks (field 22 of stat), 0 when it is gone or a zombie. */
static unsigned long long started(unsigned pid)
{
    char path[64], text[1024];
    if (!join(path, sizeof path, "/proc/%u/stat", pid))
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (!at)
            return 0;
        at++;
    }
    return number(at, 0);
}

static int on_gpu(const char *list, unsigned gpu)
{
    while (*list) {
        char *end;
        errno = 0;
        unsigned long one = strtoul(list, &end, 10);
        if (end == list)
            return 0;
        if (!errno && one == gpu)
            return 1;
        list = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            return 0;
    }
    return 0;
}

/* Reads one holder's file; 1 when it holds memory of this GPU now. */
static int read_holder(const char *path, unsigned pid, unsigned gpu, struct holder *out)
{
    char line[LINE_SIZE], *key, *value;
    struct stat info;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fstat(fileno(file), &info)) {
        fclose(file);
        return 0;
    }
    int here = 0, ghost = 0;
    double linger = 0;
    unsigned long long start = 0;
    *out = (struct holder){.pid = pid, .compute = 1};
    while (fgets(line, sizeof line, file)) {
        if (!split(line, &key, &value))
            continue;
        if (!strcmp(key, "gpus"))
            here = on_gpu(value, gpu);
        else if (!strcmp(key, "mib"))
            out->bytes = mib(value);
        else if (!strcmp(key, "linger"))
            linger = strtod(value, NULL);
        else if (!strcmp(key, "start"))
            start = number(value, 0);
        else if (!strcmp(key, "kind"))
            out->compute = strcmp(value, "graphics") != 0;
        else if (!strcmp(key, "ghost"))
            ghost = *value == '1'; /* alive, but in another pid namespace */
    }
    fclose(file);
    if (!here)
        return 0;
    unsigned long long now = started(pid);
    out->alive = ghost || (now && (!start || start == now));
    if (out->alive)
        return 1;
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    double age = difftime(clock.tv_sec, info.st_mtim.tv_sec) + (double)(clock.tv_nsec - info.st_mtim.tv_nsec) / 1e9;
    return linger > 0 && age < linger;
}

static unsigned read_holders(unsigned gpu, struct holder *out)
{
    char folder[PATH_MAX], path[PATH_MAX];
    unsigned count = 0;
    if (!state_path(folder, sizeof folder, "holders"))
        return 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    struct dirent *entry;
    while (count < MAX_HOLDERS && (entry = readdir(dir))) {
        char *end;
        errno = 0;
        unsigned long pid = strtoul(entry->d_name, &end, 10);
        if (errno || !isdigit((unsigned char)entry->d_name[0]) || (*end && *end != '.') || !pid || pid > INT_MAX)
            continue; /* ".new" files of a writer start with a dot */
        if (join(path, sizeof path, "%s/%s", folder, entry->d_name) && read_holder(path, (unsigned)pid, gpu, &out[count]))
            count++;
    }
    closedir(dir);
    return count;
}

/* ---- the library ----------------------------------------------------------------------------------------------- */

static nvmlReturn_t ready(void)
{
    pthread_mutex_lock(&lock);
    unsigned now = initialized;
    pthread_mutex_unlock(&lock);
    return now ? OK : UNINITIALIZED;
}

static nvmlReturn_t host_now(struct host *host)
{
    nvmlReturn_t ret = ready();
    return ret ? ret : read_host(host);
}

/* The GPU behind a handle, unless a fault stops this function on it. */
static nvmlReturn_t gpu_now(nvmlDevice_t device, const char *function, struct host *host, struct gpu **gpu)
{
    nvmlReturn_t ret = host_now(host);
    if (ret)
        return ret;
    uintptr_t at = (uintptr_t)device, first = (uintptr_t)devices;
    if (at < first || at >= first + sizeof devices || (at - first) % sizeof devices[0] || device->index >= host->count)
        return INVALID_ARGUMENT;
    if ((ret = fault((int)device->index, function)))
        return ret;
    *gpu = &host->gpus[device->index];
    return OK;
}

static nvmlReturn_t answer(char *out, unsigned size, const char *text)
{
    if (!out)
        return INVALID_ARGUMENT;
    size_t length = strlen(text) + 1;
    if (size < length)
        return INSUFFICIENT_SIZE;
    memcpy(out, text, length);
    return OK;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    struct host host;
    (void)flags;
    nvmlReturn_t ret = fault(-1, "init");
    if (!ret)
        ret = read_host(&host);
    if (ret)
        return ret;
    pthread_mutex_lock(&lock);
    initialized++;
    for (unsigned i = 0; i < MAX_GPUS; i++)
        devices[i].index = i;
    pthread_mutex_unlock(&lock);
    return OK;
}

API nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

API nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t ret = initialized ? OK : UNINITIALIZED;
    if (initialized)
        initialized--;
    pthread_mutex_unlock(&lock);
    return ret;
}

API const char *nvmlErrorString(nvmlReturn_t code)
{
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (ERRORS[i].code == code)
            return ERRORS[i].text;
    return "Unknown Error";
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    struct host host;
    nvmlReturn_t ret = host_now(&host);
    return ret ? ret : answer(out, size, host.driver);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    struct host host;
    nvmlReturn_t ret = read_host(&host); /* the real one answers this before nvmlInit */
    return ret ? ret : answer(out, size, host.nvml);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    struct host host;
    nvmlReturn_t ret = read_host(&host);
    if (ret || !out)
        return ret ? ret : INVALID_ARGUMENT;
    *out = host.cuda;
    return OK;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

/* ---- which GPUs ------------------------------------------------------------------------------------------------ */

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out)
{
    struct host host;
    nvmlReturn_t ret = host_now(&host);
    if (!ret)
        ret = fault(-1, "count");
    if (ret || !out)
        return ret ? ret : INVALID_ARGUMENT;
    *out = host.count;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

static nvmlReturn_t handle_of(const struct host *host, unsigned index, nvmlDevice_t *out)
{
    if (!out || index >= host->count)
        return INVALID_ARGUMENT;
    nvmlReturn_t ret = fault((int)index, "handle");
    if (!ret)
        *out = &devices[index];
    return ret;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    struct host host;
    nvmlReturn_t ret = host_now(&host);
    return ret ? ret : handle_of(&host, index, out);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    struct host host;
    nvmlReturn_t ret = host_now(&host);
    if (ret || !uuid || !out)
        return ret ? ret : INVALID_ARGUMENT;
    for (unsigned i = 0; i < host.count; i++)
        if (!strcmp(uuid, host.gpus[i].uuid))
            return handle_of(&host, i, out);
    return NOT_FOUND;
}

static int pci_parts(const char *text, unsigned *domain, unsigned *bus, unsigned *device)
{
    return sscanf(text, "%x:%x:%x", domain, bus, device) == 3;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *out)
{
    struct host host;
    unsigned a, b, c, x, y, z;
    nvmlReturn_t ret = host_now(&host);
    if (ret || !pci || !out)
        return ret ? ret : INVALID_ARGUMENT;
    if (!pci_parts(pci, &a, &b, &c))
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < host.count; i++)
        if (pci_parts(host.gpus[i].pci, &x, &y, &z) && a == x && b == y && c == z)
            return handle_of(&host, i, out);
    return NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci, nvmlDevice_t *out) { return nvmlDeviceGetHandleByPciBusId_v2(pci, out); }

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "index", &host, &gpu);
    if (ret || !out)
        return ret ? ret : INVALID_ARGUMENT;
    *out = device->index;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "name", &host, &gpu);
    return ret ? ret : answer(out, size, gpu->name);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "uuid", &host, &gpu);
    return ret ? ret : answer(out, size, gpu->uuid);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "pci", &host, &gpu);
    if (ret || !out)
        return ret ? ret : INVALID_ARGUMENT;
    memset(out, 0, sizeof *out);
    if (!pci_parts(gpu->pci, &out->domain, &out->bus, &out->device))
        return UNKNOWN;
    out->pciDeviceId = 0x2bb510de;
    out->pciSubSystemId = 0x204e10de;
    put(out->busId, sizeof out->busId, gpu->pci);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
    return OK;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *out) { return nvmlDeviceGetPciInfo_v3(device, out); }
API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *out) { return nvmlDeviceGetPciInfo_v3(device, out); }

/* ---- memory and processes -------------------------------------------------------------------------------------- */

static nvmlReturn_t memory_now(nvmlDevice_t device, struct gpu *out, unsigned long long *used)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "memory", &host, &gpu);
    if (ret)
        return ret;
    struct holder *holders = calloc(MAX_HOLDERS, sizeof *holders);
    if (!holders)
        return MEMORY;
    *out = *gpu;
    unsigned count = read_holders(device->index, holders);
    unsigned long long room = gpu->total > gpu->reserved ? gpu->total - gpu->reserved : 0;
    *used = 0;
    for (unsigned i = 0; i < count; i++)
        *used += holders[i].bytes < room - *used ? holders[i].bytes : room - *used;
    free(holders);
    return OK;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    struct gpu gpu;
    unsigned long long used;
    nvmlReturn_t ret = out ? memory_now(device, &gpu, &used) : INVALID_ARGUMENT;
    if (ret)
        return ret;
    out->total = gpu.total;
    out->used = used + gpu.reserved < gpu.total ? used + gpu.reserved : gpu.total; /* version 1 counts the reserve as used */
    out->free = out->total - out->used;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    struct gpu gpu;
    unsigned long long used;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != MEMORY_V2)
        return ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t ret = memory_now(device, &gpu, &used);
    if (ret)
        return ret;
    out->total = gpu.total;
    out->reserved = gpu.reserved < gpu.total ? gpu.reserved : gpu.total;
    out->used = used;
    out->free = out->total - out->reserved - out->used;
    return OK;
}

/* Lists processes; `write` puts one into the caller's array, whose layout differs by version. */
static nvmlReturn_t processes(nvmlDevice_t device, int compute, unsigned *count, void *infos,
                              void (*write)(void *, unsigned, const struct holder *))
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "processes", &host, &gpu);
    if (ret || !count)
        return ret ? ret : INVALID_ARGUMENT;
    struct holder *holders = calloc(MAX_HOLDERS, sizeof *holders);
    if (!holders)
        return MEMORY;
    int hidden = fault((int)device->index, "process_memory") != OK;
    unsigned found = read_holders(device->index, holders), listed = 0;
    for (unsigned i = 0; i < found; i++)
        if (holders[i].alive && holders[i].compute == compute)
            holders[listed++] = holders[i];
    ret = listed > *count ? INSUFFICIENT_SIZE : listed && !infos ? INVALID_ARGUMENT : OK;
    for (unsigned i = 0; !ret && i < listed; i++) {
        if (hidden)
            holders[i].bytes = NOT_AVAILABLE;
        write(infos, i, &holders[i]);
    }
    *count = listed;
    free(holders);
    return ret;
}

static void write_v1(void *infos, unsigned at, const struct holder *holder)
{
    ((nvmlProcessInfo_v1_t *)infos)[at] = (nvmlProcessInfo_v1_t){holder->pid, holder->bytes};
}

static void write_v2(void *infos, unsigned at, const struct holder *holder)
{
    ((nvmlProcessInfo_t *)infos)[at] = (nvmlProcessInfo_t){holder->pid, holder->bytes, NO_INSTANCE, NO_INSTANCE};
}

#define LISTING(NAME, COMPUTE, WRITE) \
    API nvmlReturn_t NAME(nvmlDevice_t device, unsigned *count, void *infos) \
    { \
        return processes(device, COMPUTE, count, infos, WRITE); \
    }
LISTING(nvmlDeviceGetComputeRunningProcesses, 1, write_v1)
LISTING(nvmlDeviceGetComputeRunningProcesses_v2, 1, write_v2)
LISTING(nvmlDeviceGetComputeRunningProcesses_v3, 1, write_v2)
LISTING(nvmlDeviceGetGraphicsRunningProcesses, 0, write_v1)
LISTING(nvmlDeviceGetGraphicsRunningProcesses_v2, 0, write_v2)
LISTING(nvmlDeviceGetGraphicsRunningProcesses_v3, 0, write_v2)

/* ---- the rest -------------------------------------------------------------------------------------------------- */

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    struct gpu gpu;
    unsigned long long used;
    nvmlReturn_t ret = out ? memory_now(device, &gpu, &used) : INVALID_ARGUMENT;
    if (!ret)
        *out = (nvmlUtilization_t){0, 0}; /* nothing computes here */
    return ret;
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "mig", &host, &gpu);
    if (ret || !current || !pending)
        return ret ? ret : INVALID_ARGUMENT;
    *current = *pending = 0;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "power", &host, &gpu);
    if (ret || !milliwatts)
        return ret ? ret : INVALID_ARGUMENT;
    *milliwatts = 38000;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius)
{
    struct host host;
    struct gpu *gpu;
    nvmlReturn_t ret = gpu_now(device, "temperature", &host, &gpu);
    if (ret || !celsius || sensor)
        return ret ? ret : INVALID_ARGUMENT;
    *celsius = 31;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *out)
{
    unsigned celsius = 0;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != TEMPERATURE_V1)
        return ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t ret = nvmlDeviceGetTemperature(device, out->sensorType, &celsius);
    if (!ret)
        out->temperature = (int)celsius;
    return ret;
}
