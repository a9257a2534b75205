/* A lock on libev: cc libev.c ../tether.c -lhiredis -lev -lm */
#include "../tether.h"
#include <hiredis/adapters/libev.h>
#include <stdio.h>
#include <stdlib.h>

static struct ev_loop *loop;

static tether_context *connect_to(void *user, const char *host, int port) {
    redisAsyncContext *ac = redisAsyncConnect(host ? host : "127.0.0.1", host ? port : atoi(user));
    if (ac && ac->err == 0)
        redisLibevAttach(loop, ac);
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
        ev_break(loop, EVBREAK_ALL);
    }
}

static void on_timer(struct ev_loop *on, ev_timer *timer, int what) {
    (void)on;
    (void)what;
    tether_tick(timer->data);
}

int main(int argc, char **argv) {
    loop = ev_loop_new(EVFLAG_AUTO);
    tether *t = tether_new(&(tether_options){.connect = connect_to, .user = argc > 1 ? argv[1] : "6379"});
    ev_timer timer;
    ev_init(&timer, on_timer);
    ev_timer_set(&timer, 0.05, 0.05);
    timer.data = t;
    ev_timer_start(loop, &timer);
    tether_acquire(t, tether_text("report"), &(tether_terms){.wait = 5000}, on_report, NULL);
    ev_run(loop, 0);
    tether_free(t);
    ev_loop_destroy(loop);
    return 0;
}
