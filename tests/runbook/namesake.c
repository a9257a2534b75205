/* Another module, which has a command of tether's. */

typedef int (*function)(void *ctx, void **argv, int argc);

static int nothing(void *ctx, void **argv, int argc) { return (void)ctx, (void)argv, (void)argc, 0; }

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *name, void *function) = ((int (**)(const char *, void *))ctx)[0];
    int (*attribute)(void *ctx, const char *name, int version, int api);
    int (*create)(void *ctx, const char *name, function, const char *flags, int, int, int);
    (void)argv, (void)argc;
    get("RedisModule_SetModuleAttribs", &attribute);
    get("RedisModule_CreateCommand", &create);
    attribute(ctx, "namesake", 1, 1);
    return create(ctx, "settp", nothing, "readonly", 0, 0, 0);
}
