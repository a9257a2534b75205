/* A lock on libuv: cc libuv.c ../tether.c -lhiredis -luv -lm */
#include "../tether.h"
#include <hiredis/adapters/libuv.h>
#include <stdio.h>
#include <stdlib.h>

static uv_loop_t loop;

static tether_context *connect_to(void *user, const char *host, int port) {
    redisAsyncContext *ac = redisAsyncConnect(host ? host : "127.0.0.1", host ? port : atoi(user));
    if (ac && ac->err == 0)
        redisLibuvAttach(ac, &loop);
    return ac;
}

static void on_report(tether_lock *lock, const tether_event *event, void *user) {
    (void)user;
    if (event->kind == TETHER_GRANTED) {
        printf("held with token %lld\n", event->token);
        if (tether_check(lock) == NULL) /* before each step of the work */
            puts("working");
        tether_release(lock);
    } else { /* TETHER_RELEASED, TETHER_REFUSED, TETHER_LOST */
        puts(event->kind == TETHER_RELEASED ? "released" : event->code);
        uv_stop(&loop);
    }
}

static void on_timer(uv_timer_t *timer) { tether_tick(timer->data); }

int main(int argc, char **argv) {
    uv_loop_init(&loop);
    tether *t = tether_new(&(tether_options){.connect = connect_to, .user = argc > 1 ? argv[1] : "6379"});
    uv_timer_t timer = {.data = t};
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_timer, 50, 50);
    tether_acquire(t, tether_text("report"), &(tether_terms){.wait = 5000}, on_report, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    tether_free(t);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT); /* which closes the handles */
    return uv_loop_close(&loop);
}
