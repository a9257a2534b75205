//! The C shim (`shim.c`): pushes, which the module API does not offer.

use super::raw::Str;
use crate::engine::ClientId;

#[allow(
    non_camel_case_types,
    reason = "made by bindgen from the shim's C header"
)]
mod c {
    include!(concat!(env!("OUT_DIR"), "/shim.rs"));
}

/// Whether this server has what pushes need.
pub fn can_push() -> bool {
    // SAFETY: reads two addresses.
    unsafe { c::tether_can_push() != 0 }
}

/// Whether an id is a connection's, not a fake client's of a script or of another module's call.
pub fn is_connected(client: ClientId) -> bool {
    // SAFETY: any id may be asked for; we are in the main thread, whose table it reads.
    unsafe { c::tether_is_connected(client.0) != 0 }
}

/// Writes a frame of three elements: `head` holds the first two as they go over the wire.
/// False if the connection is gone.
pub fn push(client: ClientId, head: Str<'_>, news: Str<'_>) -> bool {
    // SAFETY: the server copies from both strings or counts its references to them; the client is
    // looked up by its id in the same call.
    unsafe { c::tether_push(client.0, head.as_ptr().cast(), news.as_ptr().cast()) != 0 }
}

/// See `tether_keep_in_main_thread`. Not to be called while the client has tracking on.
pub fn keep_in_main_thread(client: ClientId) -> bool {
    // SAFETY: the client is looked up by its id in the same call and is executing a command of
    // ours, so no other thread has it.
    unsafe { c::tether_keep_in_main_thread(client.0) != 0 }
}
