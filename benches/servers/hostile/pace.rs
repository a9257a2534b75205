//! How slow the machine is at the moment, by work that has nothing to do with the module. Other machines, and this one while its
//! neighbours use the memory, take up to three times as long for everything.

use crate::death::ms;
use crate::server::Server;
use tether_testing::resp::{Connection, encode};

/// What the work takes on the machine of docs/benchmarks.md when nobody else uses it. All servers have the same Lua.
const USUAL_MS: f64 = 16.0;
/// Less is chance.
pub const WORTH_TELLING: f64 = 1.1;
const ROUNDS: usize = 3;
/// As an attack does: many small pieces of memory, found by their names.
const WORK: &str = "local t = {} for i = 1, 10000 do t['k' .. i] = {i} end \
                    local s = 0 for i = 10000, 1, -1 do s = s + t['k' .. i][1] end \
                    t = nil collectgarbage() return s";

/// How many times as long as usual the machine takes; at least 1, so that no bound is below what it is said to be.
pub fn of(server: &Server) -> f64 {
    let mut connection = server.connect();
    let least = (0..ROUNDS)
        .map(|_| work_ms(server, &mut connection))
        .fold(f64::MAX, f64::min);
    (least / USUAL_MS).max(1.0)
}

fn work_ms(server: &Server, connection: &mut Connection) -> f64 {
    let before = server.cpu();
    connection.run_all(&encode(["EVAL", WORK, "0"]), 1);
    let used = server.cpu().zip(before).map(|(now, then)| now - then);
    used.map_or(USUAL_MS, ms)
}
