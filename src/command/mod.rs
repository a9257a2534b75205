//! What clients may say, before it means anything to the engine: bytes in, a typed request or a
//! refusal out ([`parse()`]), and the one [`TABLE`] of commands. And what their files say ([`pack`]). It knows nothing of
//! servers.

mod glob;
mod options;
pub mod pack;
mod parse;
mod table;
pub use glob::matches;
pub use options::Ask;
pub use parse::{BadInput, List, Log, Request, parse, shown};
pub use table::{Access, Argument, ArgumentKind, KeyPlaces, Spec, TABLE, Verb};
