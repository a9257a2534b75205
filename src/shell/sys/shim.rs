//! The C shim (`shim.c`): private functions of the server, mainly for pushes, which the module API lacks.

use crate::engine::ClientId;
use crate::shell::sys::raw::strings::Text;
use crate::shell::sys::scoped::assert_nothing_borrowed;
use redis_module::raw::RedisModule_GetClientId;
use std::ffi::{CStr, c_void};

#[allow(
    non_camel_case_types,
    reason = "made by bindgen from the shim's C header"
)]
mod c {
    include!(concat!(env!("OUT_DIR"), "/shim.rs"));
}

/// Calls the shim, hence the server.
macro_rules! server {
    ($name:ident $arguments:tt) => {{
        assert_nothing_borrowed();
        c::$name $arguments
    }};
}

/// Allows or forbids calls of private functions. Forbidden initially.
pub fn set_allowed(allowed: bool) {
    // SAFETY: writes a number; we are in the main thread, which alone reads it.
    unsafe { c::tether_allow(allowed.into()) };
}

/// See `tether_fill_unused`.
pub fn fill_unused(with: u64) {
    // SAFETY: writes a number; we are in the main thread, which alone reads it.
    unsafe { c::tether_fill_unused(with) };
}

/// A function of the server's program.
fn of_server() -> Option<*const c_void> {
    // SAFETY: the table is there since before the module's first line.
    unsafe { RedisModule_GetClientId }.map(|function| function as *const c_void)
}

/// An address in the server's program.
pub fn address_in_server() -> Option<u64> {
    of_server().map(|address| address as u64)
}

/// See `tether_fits`.
pub fn symbols_match(is_redis_7_0: bool) -> bool {
    let Some(of_server) = of_server() else {
        return false;
    };
    // SAFETY: looks at addresses. Who calls this knows the server, or wants to try it.
    unsafe { c::tether_fits(of_server, is_redis_7_0.into()) != 0 }
}

/// Whether the server has the functions for pushes, and they may be called.
pub fn can_push() -> bool {
    // SAFETY: reads two addresses.
    unsafe { server!(tether_can_push()) != 0 }
}

/// Frames of three elements each: a head has the first two as on the wire.
#[derive(Default)]
pub struct Frames {
    heads: Vec<*mut c_void>,
    payload: Vec<*mut c_void>,
    /// Owns the strings that the pointers refer to.
    owned: Vec<Text>,
}

impl Frames {
    pub fn add(&mut self, head: Text, payload: Text) {
        self.heads.push(head.as_str().as_ptr().cast());
        self.payload.push(payload.as_str().as_ptr().cast());
        self.owned.extend([head, payload]);
    }

    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Writes all frames, in order. False if the client is gone.
    pub fn push(&mut self, client: ClientId) -> bool {
        let (heads, payload) = (self.heads.as_mut_ptr(), self.payload.as_mut_ptr());
        let count = self.heads.len() as i32;
        // SAFETY: the strings live as long as `self`, and there are as many of each; the server
        // copies from them or counts its references; the client is looked up by its id in the call.
        unsafe { server!(tether_push(client.0, heads, payload, count)) != 0 }
    }
}

/// See `tether_write`.
pub fn write(client: ClientId, bytes: &[u8]) -> bool {
    // SAFETY: the server copies the bytes; the client is looked up by its id in the same call.
    unsafe { server!(tether_write(client.0, bytes.as_ptr().cast(), bytes.len())) != 0 }
}

/// See `tether_end_block`.
///
/// # Safety
/// This client, if it is still connected, is blocked by a handle of ours that was not given back.
pub unsafe fn end_block(client: ClientId) -> bool {
    // SAFETY: the caller. The client is found in the same call.
    unsafe { server!(tether_end_block(client.0)) != 0 }
}

/// See `tether_can_count_acks`.
pub fn can_count_acks() -> bool {
    // SAFETY: reads some addresses.
    unsafe { server!(tether_can_count_acks()) != 0 }
}

/// See `tether_count_acks`. O(replicas).
pub fn count_acks(offset: u64) -> u32 {
    // SAFETY: reads the server's list of replicas; we are in the main thread, which alone changes it.
    unsafe { server!(tether_count_acks(offset)) }.max(0) as u32
}

/// See `tether_request_acks`.
pub fn request_acks() {
    // SAFETY: sets a mark of the server's.
    unsafe { server!(tether_request_acks()) };
}

/// See `tether_keep_in_main_thread`. Must not be called while the client has tracking on.
pub fn keep_in_main_thread(client: ClientId) -> bool {
    // SAFETY: the client is looked up by its id in the same call. It is executing a command, or was
    // kept in the main thread until this very call of the server's, so no other thread has it.
    unsafe { server!(tether_keep_in_main_thread(client.0)) != 0 }
}

/// Reverts [`keep_in_main_thread`].
pub fn release_from_main_thread(client: ClientId) {
    // SAFETY: as there.
    unsafe { server!(tether_let_go_of_main_thread(client.0)) }
}

/// See `tether_describe`. O(1).
pub fn describe(client: ClientId) -> Option<String> {
    // SAFETY: the client is looked up by its id in the same call; what is got ends in a null, is copied, and freed once.
    unsafe {
        let description = server!(tether_describe(client.0));
        if description.is_null() {
            return None;
        }
        let text = CStr::from_ptr(description).to_string_lossy().into_owned();
        server!(tether_free_description(description));
        Some(text)
    }
}

/// See `tether_learn_executing`. `client` must be the executing client.
pub fn learn_executing(client: ClientId) -> bool {
    // SAFETY: compares pointers within the first words of the server's structure, which is longer.
    unsafe { server!(tether_learn_executing(client.0)) != 0 }
}

/// The executing client; id 0 if no command is executing. `None` if unknown: see `tether_executing`.
pub fn executing() -> Option<ClientId> {
    let mut client = 0;
    // SAFETY: reads a word of the server's, which names a client that is there or nobody.
    let is_told = unsafe { server!(tether_executing(&raw mut client)) != 0 };
    is_told.then_some(ClientId(client))
}
