//! Session secrets: a client that knows one may resume the session. Only a digest is stored.

use crate::engine::{Digest, hex};
use crate::shell::sys::raw::api;
use sha2::{Digest as _, Sha256};

/// 128 random bits, in hexadecimal digits.
pub fn new() -> Vec<u8> {
    let mut bits = [0_u8; 16];
    // SAFETY: the table; the server writes so many bytes there.
    unsafe { api!(RedisModule_GetRandomBytes(bits.as_mut_ptr(), bits.len())) };
    hex(&bits)
}

/// The digest that is stored of a secret. 128 random bits cannot be recovered from it.
pub fn digest(secret: &[u8]) -> Digest {
    Digest(Sha256::digest(secret).into())
}
