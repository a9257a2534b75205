//! Files and streams of other versions. A version reads those of the one before and of the one after it.
//!
//! - `golden.rs`: files of each release, kept in `golden/`.
//! - `newer.rs`: what a newer version may write, which is not known here: skipped, or refused.
//!
//! Two versions that run beside each other: `make upgrade` (tests/failover/upgrade.rs).

mod golden;
mod newer;
