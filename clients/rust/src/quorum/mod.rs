//! A lock on three or five independent servers, held while a majority of them is.
//!
//! - protocol.rs: the rules, without a server    model.rs: all that can happen to it at small size    simulation.rs: on real engines

#[cfg(test)]
mod model;
mod protocol;
