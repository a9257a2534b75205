//! Memory from the server's own allocator, so that `used_memory` and `maxmemory` count ours.

use redis_module::raw;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;

struct ServerAlloc;

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

/// What every allocator that servers are built with aligns everything to.
const ALIGNED: usize = 8;

// SAFETY: hands on to allocators that keep the contract. Whether the server's is there does not
// change between an allocation and its release: in a server it is set before any code of ours
// allocates, elsewhere (tests, benches) never.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is not of size zero.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) if layout.align() <= ALIGNED => alloc(layout.size()).cast(),
                // Aligned further: a size that is a multiple of the alignment gets it.
                Some(alloc) => alloc(layout.pad_to_align().size()).cast(),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller got the place from the same allocator.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(place.cast::<c_void>()),
                None => System.dealloc(place, layout),
            }
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match raw::RedisModule_Realloc {
                Some(realloc) if layout.align() <= ALIGNED => {
                    realloc(place.cast::<c_void>(), size).cast()
                }
                Some(realloc) => realloc(
                    place.cast::<c_void>(),
                    size.next_multiple_of(layout.align()),
                )
                .cast(),
                None => System.realloc(place, layout, size),
            }
        }
    }
}
