//! Memory that several processes share, as a file that each of them maps.

use std::fs::OpenOptions;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

/// What can be shared so.
///
/// # Safety
/// It consists of atomics alone, and zeros are a value of it.
pub unsafe trait Shareable: Sync {}

/// One value for all processes that open the same file. It begins with zeros.
pub struct Shared<T: Shareable> {
    at: NonNull<T>,
    owns: PhantomData<T>,
}

impl<T: Shareable> Shared<T> {
    pub fn open(path: &Path) -> Shared<T> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).expect("the file that is shared");
        let length = size_of::<T>();
        file.set_len(length as u64).expect("the file's length");
        // SAFETY: a mapping of its own, anywhere, of a file that is as long as that.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Shared {
            at: NonNull::new(at.cast()).expect("an address"),
            owns: PhantomData,
        }
    }
}

impl<T: Shareable> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it is mapped as long as this is there, aligned to a page, and all bytes are a value as the trait says.
        unsafe { self.at.as_ref() }
    }
}

impl<T: Shareable> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody has a reference any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}
