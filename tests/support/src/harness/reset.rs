//! What the standard library cannot ask of a socket.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Has a connection end with a reset instead of a FIN.
pub fn break_at_drop(stream: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the descriptor is open and the option is a `linger` of that size.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0, "SO_LINGER: {}", std::io::Error::last_os_error());
}
