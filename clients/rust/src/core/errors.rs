//! What an error of the server means (P-ERR-2).

/// The first word of an error.
pub fn code(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// It passes by itself, soon.
pub fn is_momentary(text: &str) -> bool {
    matches!(code(text), "BUSY" | "LOADING" | "CLUSTERDOWN" | "TRYAGAIN")
}

/// The server takes no writes, until somebody mends it.
pub fn is_unwritable(text: &str) -> bool {
    matches!(code(text), "NOREPLICAS" | "MISCONF" | "OOM")
}

/// Another server is the master.
pub fn is_not_here(text: &str) -> bool {
    matches!(code(text), "READONLY" | "MASTERDOWN")
}

/// A server that answers so guards nothing (P-FENCE-6).
pub fn vouches(text: &str) -> bool {
    !matches!(code(text), "LOADING" | "MASTERDOWN" | "READONLY")
}

/// The module is missing, or is older than the command.
pub fn is_unknown_command(text: &str) -> bool {
    text.contains("unknown command")
}

/// Another server will answer, or this one soon.
pub fn is_passing(text: &str) -> bool {
    is_momentary(text) || is_not_here(text)
}
