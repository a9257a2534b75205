//! The command language: parses arguments into a typed request or an error ([`parse()`]), and has the one [`TABLE`] of
//! commands. Also the binary format of keys and records in RDB files ([`pack`]). Does not depend on the server.
//!
//! ```text
//!   table.rs     each command once: name, arity, flags, keys, arguments. Registration and the reference come from it
//!   parse.rs     arguments to a request           options.rs   each option once: the words after the fixed arguments
//!   glob.rs      patterns as in KEYS              pack.rs      many keys in one piece of bytes
//! ```

mod glob;
mod options;
pub mod pack;
mod parse;
mod table;
pub use glob::matches;
pub use options::{Argument, ArgumentKind, Ask, Word, shown};
pub use parse::{BadInput, List, Log, Request, parse};
pub use table::{Access, KeyPlaces, Spec, TABLE, Verb};
