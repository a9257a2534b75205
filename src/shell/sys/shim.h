/* Private server functions that the module API lacks, called by symbol name.
 *
 * Redis and Valkey export their C functions to modules (they link with -rdynamic). Those named here
 * are weak: where a server lacks one, its address is null, the module still loads, and the shim
 * reports that the operation is unavailable. The definitions say which servers have each function.
 */
#ifndef TETHER_SHIM_H
#define TETHER_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Allows or forbids private functions. Initially forbidden: every operation below is unavailable. */
void tether_allow(int yes);

/* What each call passes in the argument registers that the function called is not known to read. Initially zero. */
void tether_fill_unused(uint64_t with);

/* Whether the symbols match: all are present, belong to the same program as this API function, and find no client for an
 * unused id. Redis 7.0 ends blocks in two calls, all others in one. */
int tether_fits(const void *of_api, int two_steps);

/* Whether out-of-band frames can be pushed to a client. */
int tether_can_push(void);

/* Writes out-of-band frames of three elements each: `heads[i]` verbatim (a string object that
 * holds the first two bulks), then `news[i]` as a bulk. 0 if there is no such client. */
int tether_push(uint64_t client_id, void **heads, void **news, int count);

/* Writes bytes verbatim to a client before the reply of its executing command: the server would delay a push until after
 * it. 0 if that is not possible, e.g. because replies are suppressed (CLIENT REPLY OFF). */
int tether_write(uint64_t client_id, const char *bytes, size_t length);

/* Unblocks a client that the module blocks immediately: its timeout callback writes the reply. RedisModule_UnblockClient
 * does so one turn of the event loop later and wakes the loop through a pipe, which costs two system calls. The handle must
 * still be released. Not while a thread may own the client, and only on tested servers: no header promises the arguments. 0 if
 * that is not possible. */
int tether_end_block(uint64_t client_id);

/* Whether replica acknowledgements can be counted. */
int tether_can_count_acks(void);

/* The number of replicas that have acknowledged this offset; 0 if unknown. */
int tether_count_acks(uint64_t offset);

/* Makes the server request acknowledgements from its replicas, after sending what was replicated so far. */
void tether_request_acks(void);

/* Makes the server handle this client in its main thread only, as required for writing to it. 0 if that is not possible. */
int tether_keep_in_main_thread(uint64_t client_id);

/* Reverts tether_keep_in_main_thread. */
void tether_let_go_of_main_thread(uint64_t client_id);

/* This client's CLIENT LIST line, to be freed by `tether_free_description`; null if there is no such client, or unavailable.
 * For servers where `CLIENT LIST ID` scans all clients. */
char *tether_describe(uint64_t client_id);
void tether_free_description(char *description);

/* Redis 7.0 only: finds the word in which the server keeps the executing client, given a client that is executing a command
 * of the module. 1 once it is known. */
int tether_learn_executing(uint64_t client_id);

/* Redis 7.0 only: stores the executing client, 0 for none. Returns 0 if unknown. */
int tether_executing(uint64_t *client_id);

#endif
