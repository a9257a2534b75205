//! Allocates with the server's allocator, so that `used_memory` and `maxmemory` include the module.

use redis_module::raw;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;

struct ServerAlloc;

#[global_allocator]
static ALLOCATOR: ServerAlloc = ServerAlloc;

/// The alignment that every allocator of servers guarantees. Some guarantee no more: they store a size before each block.
const ALIGNED: usize = size_of::<usize>();

/// Allocates for a greater alignment: over-allocates by the alignment, moves to its next multiple, and stores the block's
/// start in the word before it.
///
/// # Safety
/// `alloc` gives memory of the size that it is asked for, at a multiple of [`ALIGNED`], or null.
unsafe fn alloc_aligned(alloc: impl FnOnce(usize) -> *mut u8, layout: Layout) -> *mut u8 {
    let start = alloc(layout.size() + layout.align());
    if start.is_null() {
        return start;
    }
    // The alignment is a greater power of two than `ALIGNED`, so from one of its multiples back to any of that is a word at
    // least; and at most the alignment itself.
    let on = layout.align() - start.addr() % layout.align();
    // SAFETY: see above: within what was given, and the word in front of it, too.
    unsafe {
        let place = start.add(on);
        place.cast::<*mut u8>().sub(1).write(start);
        place
    }
}

/// # Safety
/// The place was given by [`alloc_aligned`].
unsafe fn start_of(place: *mut u8) -> *mut u8 {
    // SAFETY: it was written there.
    unsafe { place.cast::<*mut u8>().sub(1).read() }
}

// SAFETY: hands on to allocators that keep the contract. Whether the server's is there does not
// change between an allocation and its release: in a server it is set before any code of ours
// allocates, elsewhere (tests, benches) never.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is not of size zero.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) if layout.align() <= ALIGNED => alloc(layout.size()).cast(),
                Some(alloc) => alloc_aligned(|size| alloc(size).cast(), layout),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller got the place from the same allocator.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) if layout.align() <= ALIGNED => free(place.cast::<c_void>()),
                Some(free) => free(start_of(place).cast::<c_void>()),
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
                Some(_) => {
                    let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !new.is_null() {
                        std::ptr::copy_nonoverlapping(place, new, size.min(layout.size()));
                        self.dealloc(place, layout);
                    }
                    new
                }
                None => System.realloc(place, layout, size),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_aligned_further_is_so_wherever_the_memory_begins() {
        let mut memory = [0_u64; 64];
        for words in 0..8 {
            for align in [16, 32, 64, 128] {
                let layout = Layout::from_size_align(24, align).expect("a layout");
                let start = memory[words..].as_mut_ptr().cast::<u8>();
                let mut wanted = 0;
                // SAFETY: the memory is as long as is asked for, which is looked at, and begins at a word.
                let place = unsafe {
                    let give = |size| {
                        wanted = size;
                        start
                    };
                    alloc_aligned(give, layout)
                };
                let (place_at, start_at) = (place.addr(), start.addr());
                assert_eq!(place_at % align, 0);
                assert!(start_at + ALIGNED <= place_at);
                assert!(place_at + layout.size() <= start_at + wanted);
                assert!(wanted <= size_of_val(&memory[words..]));
                // SAFETY: it was just given.
                assert_eq!(unsafe { start_of(place) }, start);
            }
        }
    }
}
