/* Server functions that the module API does not offer, called by name.
 *
 * Redis and Valkey export their C functions to modules (they link with -rdynamic). Those named here
 * are weak: where a server lacks one, its address is null, the module still loads, and the shim
 * says that the thing cannot be done. What each needs of the server is written at its definition.
 */
#ifndef TETHER_SHIM_H
#define TETHER_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Whether the functions may be called from now on; until then none is, and all that follows says that it cannot be done. */
void tether_allow(int yes);

/* Whether they are what they should be: all there, of the same program as this function of the module API, and looking up
 * nobody for an id that nobody has. Redis 7.0 ends blocks in two steps, and all others in one. */
int tether_fits(const void *of_api, int two_steps);

/* Whether frames can be pushed to a connection that did not ask. */
int tether_can_push(void);

/* Writes out-of-band frames of three elements each: `heads[i]` as it stands (a string object that
 * holds the first two bulks), then `news[i]` as a bulk. 0 if there is no such connection (any more); with `if_it_hears` 2,
 * and nothing is written, if it wants no replies (CLIENT REPLY OFF, SKIP). */
int tether_push(uint64_t client_id, void **heads, void **news, int count, int if_it_hears);

/* Writes bytes to a connection as they are, in front of the reply of the command that it executes: the
 * server would hold a push back until after it. 0 if that cannot be done, as where it takes them for a reply that the
 * client does not want (CLIENT REPLY OFF). */
int tether_write(uint64_t client_id, const char *bytes, size_t length);


/* PROPAGATE_AOF and PROPAGATE_REPL of the server's own headers. */
enum { TO_FILE = 1, TO_ALL = 1 | 2 };

/* Ends a connection's block, for which our RedisModule_BlockClient gave this handle, now: its timeout callback is called for
 * the answer. RedisModule_UnblockClient does it a turn of the event loop later and wakes that loop by a pipe, which costs
 * two system calls. The handle is to be given back all the same. Not while a thread may own the connection, and only for
 * servers with which it was tried: no header promises the arguments. 0 if that cannot be done. */
int tether_end_block(uint64_t client_id, void *handle);

/* Whether it can be counted how many replicas have acknowledged what was replicated to them. */
int tether_can_count_acks(void);

/* How many replicas have acknowledged all up to this offset; 0 where that cannot be told. */
int tether_count_acks(uint64_t offset);

/* Has the server ask its replicas how far they have come, once what was replicated so far is on its way to them. */
void tether_request_acks(void);

/* Has the server handle this connection in its main thread only, as it must be where others write
 * to it. 0 if that cannot be done. */
int tether_keep_in_main_thread(uint64_t client_id);

/* Takes that back. */
void tether_let_go_of_main_thread(uint64_t client_id);

/* What CLIENT LIST says of this connection, to be given to `tether_free_description`; null if it is not there, or that cannot
 * be told. For servers that look at all their connections for `CLIENT LIST ID`. */
char *tether_describe(uint64_t client_id);
void tether_free_description(char *description);

/* Redis 7.0 only: finds out where the server names the connection whose command it executes, from one that is executing a command
 * of ours. 1 once that is known. */
int tether_learn_executing(uint64_t client_id);

/* Redis 7.0 only: whose command is executed, 0 for nobody's. 0 is given where that cannot be told. */
int tether_executing(uint64_t *client_id);

#endif
