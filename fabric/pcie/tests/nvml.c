/* A stand-in for libnvidia-ml: the GPUs are those that the sysfs under ROOT shows, with the class of a 3D controller.
 *
 * Types and return values are those of NVIDIA's public header nvml.h. What is left out is missing, as calls are in
 * libraries that are older than their callers. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef ROOT
#define ROOT ""
#endif
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7, NO_DRIVER = 9, LOST = 15 };
enum { MOST = 32 };

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} pci_info;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_info;
typedef struct {
    unsigned gpu, memory;
} utilization;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_info;

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, status;
    unsigned long long value;
} field_value;

static char found[MOST][16];

static int text_of(const char *path, char *text, int size) {
    FILE *from = fopen(path, "r");
    if (!from) return 0;
    int read = (int)fread(text, 1, (size_t)size - 1, from);
    text[read] = 0;
    fclose(from);
    return read;
}

static int file(const char *address, const char *name, char *text, int size) {
    char path[512];
    snprintf(path, sizeof path, ROOT "/sys/bus/pci/devices/%s/%s", address, name);
    return text_of(path, text, size);
}

/* Looks anew: GPUs come and go. */
static unsigned look(void) {
    unsigned count = 0;
    DIR *folder = opendir(ROOT "/sys/bus/pci/devices");
    if (!folder) return 0;
    for (struct dirent *entry; count < MOST && (entry = readdir(folder));) {
        char class[16];
        if (strlen(entry->d_name) == 12 && file(entry->d_name, "class", class, sizeof class) && !strncmp(class, "0x0302", 6))
            strcpy(found[count++], entry->d_name);
    }
    closedir(folder);
    return count;
}

static int alive(const char *gpu) {
    char config[5] = {0};
    return file(gpu, "config", config, sizeof config) == 4 && memcmp(config, "\xff\xff\xff\xff", 4);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return look() ? SUCCESS : NO_DRIVER;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { return snprintf(text, size, "570.00") < (int)size ? SUCCESS : SMALL; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = look();
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= look()) return INVALID;
    *device = found[index];
    return alive(found[index]) ? SUCCESS : LOST;
}
int nvmlDeviceGetName(const char *gpu, char *text, unsigned size) {
    (void)gpu;
    snprintf(text, size, "NVIDIA H100 80GB HBM3");
    return SUCCESS;
}
int nvmlDeviceGetUUID(const char *gpu, char *text, unsigned size) {
    snprintf(text, size, "GPU-00000000-0000-0000-0000-%.4s%.2s%.2s0000", gpu, gpu + 5, gpu + 8);
    return SUCCESS;
}
int nvmlDeviceGetVbiosVersion(const char *gpu, char *text, unsigned size) {
    (void)gpu;
    snprintf(text, size, "96.00.61.00.01");
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(const char *gpu, pci_info *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "0000%s", gpu);
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(const char *gpu, memory_info *info) {
    (void)gpu;
    info->total = 85520809984ULL, info->used = 1048576, info->reserved = 0, info->free = info->total - info->used;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(const char *gpu, utilization *rates) {
    (void)gpu;
    rates->gpu = 42, rates->memory = 7;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(const char *gpu, unsigned *milliwatts) {
    (void)gpu;
    *milliwatts = 71250;
    return SUCCESS;
}
/* What a GPU is set to, and how its memory is, lie in files of /tmp, so that a test may set and read them. */
static unsigned kept(const char *gpu, const char *name, unsigned otherwise) {
    char path[512], text[32] = "";
    snprintf(path, sizeof path, ROOT "/tmp/nvml_%s_%s", name, gpu);
    return text_of(path, text, sizeof text) ? (unsigned)strtoul(text, 0, 10) : otherwise;
}
static int keep(const char *gpu, const char *name, unsigned value) {
    char path[512];
    mkdir(ROOT "/tmp", 0777);
    snprintf(path, sizeof path, ROOT "/tmp/nvml_%s_%s", name, gpu);
    FILE *to = fopen(path, "w");
    if (!to) return NO_PERMISSION;
    fprintf(to, "%u\n", value);
    fclose(to);
    return SUCCESS;
}
int nvmlDeviceGetPersistenceMode(const char *gpu, unsigned *on) {
    *on = kept(gpu, "persistence", 0);
    return SUCCESS;
}
int nvmlDeviceSetPersistenceMode(const char *gpu, unsigned on) { return keep(gpu, "persistence", on); }
/* Takes effect with the next reset, as of a real one. */
int nvmlDeviceGetEccMode(const char *gpu, unsigned *now, unsigned *then) {
    *now = kept(gpu, "ecc", 1), *then = kept(gpu, "ecc_next", *now);
    return SUCCESS;
}
int nvmlDeviceSetEccMode(const char *gpu, unsigned on) { return keep(gpu, "ecc_next", on); }
/* Offered where a test has put a mode there; takes effect with the next reset. */
int nvmlDeviceGetMigMode(const char *gpu, unsigned *now, unsigned *then) {
    if ((*now = kept(gpu, "mig", 2)) > 1) return NOT_SUPPORTED;
    *then = kept(gpu, "mig_next", *now);
    return SUCCESS;
}
int nvmlDeviceSetMigMode(const char *gpu, unsigned on, int *activated) {
    *activated = SUCCESS;
    return kept(gpu, "mig", 2) > 1 ? NOT_SUPPORTED : keep(gpu, "mig_next", on);
}
int nvmlDeviceGetComputeMode(const char *gpu, unsigned *mode) {
    *mode = kept(gpu, "compute", 0);
    return SUCCESS;
}
int nvmlDeviceSetComputeMode(const char *gpu, unsigned mode) { return keep(gpu, "compute", mode); }
int nvmlDeviceGetPowerManagementLimit(const char *gpu, unsigned *milliwatts) {
    *milliwatts = kept(gpu, "power", 700000);
    return SUCCESS;
}
int nvmlDeviceSetPowerManagementLimit(const char *gpu, unsigned milliwatts) {
    return milliwatts < 200000 || milliwatts > 700000 ? INVALID : keep(gpu, "power", milliwatts);
}
int nvmlDeviceGetRetiredPagesPendingStatus(const char *gpu, unsigned *pending) {
    (void)gpu, (void)pending;
    return NOT_SUPPORTED;
}
/* Of all fields there are those of memory rows that wait to be remapped, and of one that could not be. */
int nvmlDeviceGetFieldValues(const char *gpu, int count, field_value *values) {
    for (int at = 0; at < count; at++) {
        const char *name = values[at].field == 144 ? "remap_pending" : values[at].field == 145 ? "remap_failure" : 0;
        values[at].status = name ? SUCCESS : NOT_SUPPORTED;
        values[at].type = 1;
        values[at].value = name ? kept(gpu, name, 0) : 0;
    }
    return SUCCESS;
}
/* Processes are named in a file beside the GPU, or where sysfs is real in /tmp, one pid after the other. */
int nvmlDeviceGetComputeRunningProcesses_v3(const char *gpu, unsigned *count, process_info *processes) {
    char text[256] = "";
    if (!file(gpu, "nvml_processes", text, sizeof text)) text_of(ROOT "/tmp/nvml_processes", text, sizeof text);
    unsigned room = processes ? *count : 0, seen = 0, pid;
    for (char *at = text; sscanf(at, "%u", &pid) == 1; seen++) {
        if (seen < room) processes[seen] = (process_info){pid, 1048576, ~0u, ~0u};
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : at + strlen(at);
    }
    *count = seen;
    return seen > room ? SMALL : SUCCESS;
}
