/* What a server does to load a module, and nothing more: prints what the module logs, and whether it is loaded.
 *
 *   refusing MODULE FUNCTION NUMBER   refuses each call of this function of the API from this one on; 0: has no such function */

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *refused;
static long number, calls;

static int is_refused(const char *name) { return !strcmp(name, refused) && ++calls >= number; }

#define CODE(name) \
    static int name(void) { return is_refused(#name); }
#define POINTER(name) \
    static void *name(void) { return is_refused(#name) ? NULL : calloc(1, 4096); }

POINTER(GetDetachedThreadSafeContext)
POINTER(CreateDataType)
POINTER(GetCommand)
CODE(CreateCommand)
CODE(SetCommandACLCategories)
CODE(SetCommandInfo)
CODE(AddACLCategory)
CODE(RegisterNumericConfig)
CODE(RegisterBoolConfig)
CODE(RegisterEnumConfig)
CODE(RegisterStringConfig)
CODE(LoadConfigs)
CODE(IsModuleNameBusy)

/* Whatever else there is has nothing to tell: zero is no error, and no answer. */
static long nothing(void) { return 0; }

static void log_line(void *ctx, const char *level, const char *format, ...) {
    va_list arguments;
    (void)ctx;
    printf("%s: ", level);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

#define ENTRY(name) {#name, (void *)name}
static const struct {
    const char *name;
    void *function;
} api[] = {
    ENTRY(GetDetachedThreadSafeContext),
    ENTRY(CreateDataType),
    ENTRY(GetCommand),
    ENTRY(CreateCommand),
    ENTRY(SetCommandACLCategories),
    ENTRY(SetCommandInfo),
    ENTRY(AddACLCategory),
    ENTRY(RegisterNumericConfig),
    ENTRY(RegisterBoolConfig),
    ENTRY(RegisterEnumConfig),
    ENTRY(RegisterStringConfig),
    ENTRY(LoadConfigs),
    ENTRY(IsModuleNameBusy),
    {"Log", (void *)log_line},
    {"Alloc", (void *)malloc},
    {"Calloc", (void *)calloc},
    {"Realloc", (void *)realloc},
    {"Free", (void *)free},
};

static int get_api(const char *full, void **function) {
    const char *name = full + strlen("RedisModule_");
    if (number == 0 && !strcmp(name, refused)) return 1;
    *function = (void *)nothing;
    for (size_t at = 0; at < sizeof api / sizeof *api; at++)
        if (!strcmp(name, api[at].name)) *function = api[at].function;
    return 0;
}

int main(int argc, char **argv) {
    void *module, *ctx[64] = {(void *)get_api};
    int (*load)(void *ctx, void **argv, int argc);
    if (argc != 4) return 2;
    refused = argv[2];
    number = atol(argv[3]);
    module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
    load = (int (*)(void *, void **, int))dlsym(module, "RedisModule_OnLoad");
    printf("%s\n", load(ctx, NULL, 0) ? "refused" : "loaded");
    fflush(stdout);
    /* Without what the module does when its process ends. */
    _exit(0);
}
