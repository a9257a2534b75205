//! LOCK.LIST, from its walk's beginning to its end.

use super::client::Client;
use crate::resp::Frame;

/// All that LOCK.LIST has with these options, in as many steps as it takes.
pub fn lock_list(client: &mut Client, options: &str) -> Vec<Frame> {
    let (mut lines, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let step = client.run(format!("LOCK.LIST {cursor} {options}").trim_end());
        let [next, some] = &step.items()[..] else {
            panic!("a cursor and keys, and not {step:?}");
        };
        lines.extend(some.items());
        cursor = next.text();
        if cursor == "0" {
            return lines;
        }
    }
}
