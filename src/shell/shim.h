/* Server functions that the module API does not offer, called by name.
 *
 * Redis and Valkey export their C functions to modules (they link with -rdynamic). Those named here
 * are weak: where a server lacks one, its address is null, the module still loads, and the shim
 * says that the thing cannot be done. What each needs of the server is written at its definition.
 */
#ifndef TETHER_SHIM_H
#define TETHER_SHIM_H

#include <stdint.h>

/* Whether frames can be pushed to a connection that did not ask. */
int tether_can_push(void);

/* Whether a connection with this id is there; 1 also where that cannot be told. */
int tether_is_connected(uint64_t client_id);

/* Writes one out-of-band frame of three elements: `head` as it stands (a string object that holds
 * the first two bulks), then `news` as a bulk. 0 if there is no such connection (any more). */
int tether_push(uint64_t client_id, void *head, void *news);

/* Has the server handle this connection in its main thread only, as it must be where others write
 * to it. 0 if that cannot be done. */
int tether_keep_in_main_thread(uint64_t client_id);

#endif
